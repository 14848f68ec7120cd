"""Django's settings: everything an installation may change comes from the environment or `.env`."""

import os
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from console.database import database
from console.engine import engine
from console.env import load_env_file
from console.mail import mail
from console.oidc_settings import mfa_roles, oidc
from console.proxies import networks
from kernel.conf import conf

BASE_DIR = Path(__file__).resolve().parent.parent
if os.environ.get("BAILING_READ_ENV_FILE", "1") == "1":
    load_env_file(BASE_DIR / ".env")

# `install` creates the secret key; it, the build of an image and the help pages run without one.
COMMANDS_WITHOUT_SECRET = {"install", "collectstatic", "help", "version"}
COMMANDS_WITHOUT_SECRET |= {"--help", "-h", "--version"}
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "")
if not SECRET_KEY:
    if len(sys.argv) < 2 or sys.argv[1] in COMMANDS_WITHOUT_SECRET or "--help" in sys.argv:
        SECRET_KEY = os.urandom(32).hex()
    else:
        raise ImproperlyConfigured(
            "DJANGO_SECRET_KEY is not set. `manage.py install` writes a .env where there is none;"
            " to one that is there add a key:"
            ' echo "DJANGO_SECRET_KEY=$(openssl rand -base64 48)" >> .env'
        )

# Former keys, comma-separated: what they signed or encrypted (second factors) is still read.
SECRET_KEY_FALLBACKS = [
    key for key in os.environ.get("DJANGO_SECRET_KEY_FALLBACKS", "").split(",") if key
]

DEBUG = os.environ.get("BAILING_DEBUG", "") == "1"
ALLOWED_HOSTS = os.environ.get("BAILING_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [
    origin for origin in os.environ.get("BAILING_TRUSTED_ORIGINS", "").split(",") if origin
]
BEHIND_TLS = os.environ.get("BAILING_BEHIND_TLS", "") == "1"
# Addresses and networks of the proxies in front, whose X-Forwarded-For and -Proto count
# (console/proxies.py). Behind TLS and not told otherwise: a proxy on this host.
TRUSTED_PROXIES = networks(
    os.environ.get("BAILING_TRUSTED_PROXIES", "127.0.0.1, ::1" if BEHIND_TLS else "")
)

VAR_DIR = Path(os.environ.get("BAILING_VAR_DIR", BASE_DIR / "var"))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_prometheus",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "kernel",
    "console",
]
# Single sign-on by OpenID Connect exists only where BAILING_OIDC_URL is set (console/oidc.py).
OIDC = oidc(os.environ)
if OIDC is not None:
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]
LOCALE_PATHS = [BASE_DIR / "console" / "locale"]
# With one language every look-up of a text finds the text itself: a page has hundreds.
USE_I18N = len(LANGUAGES) > 1

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.middleware.RequestIdMiddleware",
    "console.csp.SecurityHeadersMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    *(["django.middleware.locale.LocaleMiddleware"] if USE_I18N else []),
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.middleware.SessionLimitsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "console.middleware.ZoneMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.access.AccessMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "console.urls"
API_URLCONF = "kernel.api.urls"
ASGI_APPLICATION = "console.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.context.shell",
            ],
        },
    },
]

DATABASES = {
    "default": database(
        os.environ.get("BAILING_DATABASE_URL", ""),
        default_path=VAR_DIR / "bailing.sqlite3",
        mysql_password=os.environ.get("MYSQL_PASSWORD", ""),
    )
}
# Who ticks and runs the work; with BAILING_ENGINE=celery BAILING_BROKER_URL is needed.
ENGINE = engine(os.environ)
# Where a process without a web door (worker, maintain) serves /metrics, e.g. 127.0.0.1:9464.
METRICS_ADDRESS = os.environ.get("BAILING_METRICS_ADDRESS", "")
# `migrate` refuses and names db_init; the test settings allow it.
ALLOW_PLAIN_MIGRATE = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# allauth is the engine of second factors and single sign-on; the pages and addresses are ours.
# Tries are counted by kernel/access/sign_ins.py, for all processes at once.
ACCOUNT_ADAPTER = "console.factors.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False
MFA_RATE_LIMITS = False
MFA_ADAPTER = "console.factors.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "Bailing"
MFA_TOTP_TOLERANCE = 1  # steps of 30 s: phones' clocks differ
SOCIALACCOUNT_ADAPTER = "console.oidc.IdentityAdapter"
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [OIDC.app()]}} if OIDC else {}
# Roles that must have a second factor, e.g. `admin,operator`.
MFA_ROLES = mfa_roles(os.environ)
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign-in"

# Per process; nothing that several processes must agree on is kept here.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# Notifications by e-mail; without BAILING_EMAIL_URL that channel says that it is not configured.
MAIL = mail(os.environ.get("BAILING_EMAIL_URL", ""))
EMAIL_HOST, EMAIL_PORT = MAIL.host, MAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL.user, MAIL.secret
EMAIL_USE_TLS, EMAIL_USE_SSL = MAIL.starttls, MAIL.tls
DEFAULT_FROM_EMAIL = MAIL.sender

TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# An image collects them once; without it they are served from where they lie.
STATIC_ROOT = os.environ.get("BAILING_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG

SESSION_ENGINE = "console.sessions"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = BEHIND_TLS
SESSION_COOKIE_AGE = conf.session_idle_seconds
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
CSRF_COOKIE_SECURE = BEHIND_TLS
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "console.views.errors.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
# The scheme is told by trusted proxies alone (console/proxies.py), so no header is named here.
SECURE_SSL_REDIRECT = BEHIND_TLS
X_FRAME_OPTIONS = "DENY"
SIGNED_COOKIE_LEGACY_SALT_FALLBACK = False
SILENCED_SYSTEM_CHECKS = [
    # Conditional unique keys of allauth, absent on MySQL: its rows are written under the lock of
    # the person (kernel/access/factors.py). Our own models have none (a test looks).
    "models.W036",
    # The key is 32 characters of Base64 from openssl: 192 random bits. The check counts to 50.
    "security.W009",
    # Other hosts under this name are not ours to decide about; a proxy may send more.
    "security.W005",
    "security.W021",
]

DATA_UPLOAD_MAX_MEMORY_SIZE = conf.request_body_bytes_max
FILE_UPLOAD_MAX_MEMORY_SIZE = conf.request_body_bytes_max  # nothing is spooled to disk
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000

PROMETHEUS_EXPORT_MIGRATIONS = False

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "console.logs.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("BAILING_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "django.request": {"level": "ERROR"},
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "uvicorn.access": {"level": "WARNING"},
        # Its lines of each start and end say less than ours, and one promises what is not so.
        "uvicorn.error": {"level": "WARNING"},
    },
}
