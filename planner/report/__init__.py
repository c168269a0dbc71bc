"""Output: CSV, Markdown, JSON, HTML, workbooks, data frames and tables on a terminal. The only package that rounds."""
