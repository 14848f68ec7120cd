"""Rows that say who may act: API tokens, sessions of the console, counted tries at signing in."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
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


class ConsoleSession(AbstractBaseSession):
    """One place where somebody is signed in; `person_id` is None before the sign-in is complete."""

    person_id = models.BigIntegerField(null=True)
    expire_date = models.DateTimeField()

    class Meta:
        db_table = "bz_sessions"
        indexes = (
            models.Index(fields=["person_id", "expire_date"], name="bz_session_person"),
            models.Index(fields=["expire_date"], name="bz_session_expiry"),
        )

    @classmethod
    def get_session_store_class(cls) -> Any:
        """The store that the settings name; Django asks for it to decode a row."""
        return import_module(settings.SESSION_ENGINE).SessionStore


class SignInTry(models.Model):
    """How often something was tried in a window: a hash of what, never a name or an address."""

    key_sha256 = IdField(primary_key=True, max_length=64)
    count = models.IntegerField()
    ends_at = models.DateTimeField()

    class Meta:
        db_table = "bz_sign_in_tries"
        indexes = (models.Index(fields=["ends_at"], name="bz_sign_in_try_end"),)
