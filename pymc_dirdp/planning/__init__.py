"""All that is decided without data: calibration, allocation, choice, comparison, price lists."""
