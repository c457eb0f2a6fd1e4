"""The place of the browser console."""
