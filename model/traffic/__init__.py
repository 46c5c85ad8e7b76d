"""Production traffic from files: one request at a time, whatever the format."""
