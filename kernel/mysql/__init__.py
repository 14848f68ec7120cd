"""The database backend for MySQL and MariaDB: Django's own, with a cheaper BEGIN."""
