"""Put back what a verification found to be damaged: plan, then apply."""
