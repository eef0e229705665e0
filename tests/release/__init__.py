"""What a release consists of, and the pages for contributors."""
