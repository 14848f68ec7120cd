"""Rows of taste: one per person, what they like to see. No act and no rule hangs on them (L)."""

from django.db import models


class Preference(models.Model):
    """A person's time zone and named views of lists; `person_id` is Django's user id."""

    person_id = models.BigIntegerField(primary_key=True)
    zone = models.CharField(max_length=64, default="", blank=True)  # '' = as the installation
    views_text = models.TextField(default="[]")  # JSON: [{screen, name, query}], oldest first
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_preferences"
