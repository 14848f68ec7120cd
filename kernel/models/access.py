"""Rows that say who may act: API tokens."""

from django.db import models

from kernel.ids import IdField


class AppliedSecret(models.Model):
    """Which value of an environment secret was applied last: a keyed digest, never the value."""

    name = IdField(primary_key=True, max_length=64)
    digest = models.CharField(max_length=64)
    applied_at = models.DateTimeField()

    class Meta:
        db_table = "bz_applied_secrets"


class Token(models.Model):
    """An API token: only its sha256 and a prefix are stored; the secret is shown once."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    name = models.CharField(max_length=120)
    scopes = models.CharField(max_length=255)
    prefix = models.CharField(max_length=16)
    secret_sha256 = IdField(max_length=64, unique=True)
    origin = IdField(max_length=24, default="issued")  # issued | environment
    created_by = models.CharField(max_length=160)
    created_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bz_tokens"
