"""Messages between this product and other systems: how they are signed and verified."""
