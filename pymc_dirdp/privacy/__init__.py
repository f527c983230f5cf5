"""What is promised and what is lost: privacy curves, and what one person can change."""
