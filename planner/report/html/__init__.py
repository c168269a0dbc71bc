"""Models as HTML, for a page and for notebooks: charts beside their values. All text from specs is escaped here."""
