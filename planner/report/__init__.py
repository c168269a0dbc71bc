"""How it is told: figures as CSV, Markdown, JSON, a data frame, and tables on a terminal. The only room that rounds."""
