"""What joins Hawser with frameworks."""
