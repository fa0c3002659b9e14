"""What was recorded, compared and judged: session to comparison, without a word of a form."""
