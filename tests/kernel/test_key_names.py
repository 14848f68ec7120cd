"""Which environment variables may be read as keys: none of ours, and only declared ones (I1)."""

import pytest

from kernel.errors import InvalidInput
from kernel.ids import check_key_name, key_value

SECRETS = ("DJANGO_SECRET_KEY", "BAILING_API_TOKEN", "BAILING_ADMIN_PASSWORD", "MYSQL_PASSWORD")
HOSTS = ("PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "SSH_PRIVATE_KEY", "DATABASE_URL", "VAULT_TOKEN")


def allows(name, **how):
    try:
        return check_key_name(name, field="secret_env", **how) == name
    except InvalidInput as error:
        assert error.field == "secret_env"
        return False


@pytest.mark.parametrize("declared", ["", "SHOP_*", "*", "DJANGO_SECRET_KEY"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_this_product_is_never_a_key(name, declared):
    assert not allows(name, environ={"BAILING_KEY_NAMES": declared})
    assert key_value(name, environ={"BAILING_KEY_NAMES": declared, name: "x"}) == ""


@pytest.mark.parametrize("name", HOSTS)
def test_what_the_host_keeps_is_no_key_unless_it_is_declared(name):
    assert not allows(name, environ={})
    assert allows(name, environ={"BAILING_KEY_NAMES": f"OTHER, {name}"})


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "SHOP_HOOK_SECRET", "ACME_SIGNING_NEXT"])
def test_a_telling_name_is_a_key_unless_others_are_declared(name):
    assert allows(name, environ={})
    assert not allows(name, environ={"BAILING_KEY_NAMES": "CRM_*"})
    assert key_value(name, environ={name: "value"}) == "value"


@pytest.mark.parametrize("name", ["", "lower_key", "A KEY", "X_KEY\n", "KEY-1", 7, None])
def test_what_is_no_name_is_refused(name):
    assert not allows(name, environ={"BAILING_KEY_NAMES": "*"})


def test_only_decisions_are_signed_with_the_installations_own_secret():
    own = "BAILING_WEBHOOK_SECRET"
    assert allows(own, also=own, environ={})
    assert not allows(own, environ={})
    assert not allows("BAILING_API_TOKEN", also=own, environ={})
