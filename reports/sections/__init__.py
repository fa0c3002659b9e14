"""The sections of a report: one file each, written once for every form and any number of arms.

A section is a function of a :class:`reports.sections.view.View` (and of a pair of arms, where
it is of one) that returns blocks; which of them a form has stands in ``reports.forms``.
"""
