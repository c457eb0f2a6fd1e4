"""Where the browser console will be."""
