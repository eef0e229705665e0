"""Shared by all reports: charts, tables, templates, PDF and number formats."""
