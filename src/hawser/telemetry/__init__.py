"""What a worker tells of itself, for metrics and logs."""
