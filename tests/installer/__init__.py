"""The installer, driven with synthetic openssl commands in temporary directories."""
