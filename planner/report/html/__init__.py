"""Models as HTML: pictures with their figures beside them, for a page and for notebooks. Whatever a spec says is escaped here."""
