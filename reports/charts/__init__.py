"""The charts of a report: what each shows is given to it, in numbers and in words."""
