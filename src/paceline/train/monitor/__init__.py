"""What a worker reports and checks while it trains."""
