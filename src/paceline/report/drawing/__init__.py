"""What all reports share: charts, tables, templates, PDF and number formats."""
