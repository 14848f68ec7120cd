"""What tests lean on: servers, environments, waiting. Nothing here ships with the product."""
