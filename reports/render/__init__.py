"""Blocks to a page, to Markdown, to plain text: one file a form, and every escape once."""
