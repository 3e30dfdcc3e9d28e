"""From `Credentials` to keys that sign a request, and from a user's environment to `Credentials`.

Not for storing: keys stay in memory. Instance metadata and the environment of the node are never asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import botocore.exceptions
import botocore.session

from stoker.api.reasons import Reason
from stoker.api.redact import hide
from stoker.api.resolve import ResolvedSource
from stoker.sources.base import Credentials, SourceError


@dataclass(frozen=True, slots=True)
class Keys:
    """What signs one request. `expires`: when they stop working, where that is known."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires: datetime | None = None

    def __post_init__(self) -> None:
        hide(self.access_key, self.secret_key, self.token)


class KeyRing:
    """The keys of one source: fixed, or renewed from a profile. None means unsigned requests."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._profile: Any = None

    @property
    def identity(self) -> str:
        """Who asks, for messages; no secret."""
        given = self._credentials
        if given.kind == "profile":
            return f"profile {given.profile or 'default'}"
        return f"access key ...{given.access_key[-4:]}" if given.kind == "static" else "anonymous"

    @property
    def renewable(self) -> bool:
        return self._credentials.kind == "profile"

    @property
    def may_have_token(self) -> bool:
        """Whether requests carry, or may come to carry, a session token: a secret in a header of its own."""
        return self.renewable or bool(self._credentials.session_token)

    async def keys(self) -> Keys | None:
        """The keys of this moment. Raises SourceError(CredentialsMissing | CredentialsExpired)."""
        given = self._credentials
        if given.kind == "static":
            return Keys(given.access_key, given.secret_key, given.session_token)
        if given.kind == "profile":
            # botocore may run a command or speak to an identity provider here.
            return await asyncio.to_thread(self._of_profile)
        return None

    def renew(self) -> None:
        """Forget what the profile gave; the next `keys` resolves it again."""
        self._profile = None

    def _of_profile(self) -> Keys:
        if self._profile is None:
            self._profile = _resolve(self._credentials)
        try:
            frozen = self._profile.get_frozen_credentials()
        except Exception as error:  # botocore: whatever the user's own credential command or provider raises
            raise _unusable(self._credentials, Reason.CredentialsExpired, error) from None
        expires = getattr(self._profile, "_expiry_time", None)
        return Keys(frozen.access_key, frozen.secret_key, frozen.token or "", expires and expires.astimezone(UTC))


def _resolve(given: Credentials) -> Any:
    try:
        found = _session(given.profile, given.config_file, given.credentials_file).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise _unusable(given, Reason.CredentialsMissing, error) from None
    if found is None:
        raise _unusable(given, Reason.CredentialsMissing, None)
    return found


def _session(profile: str, config_file: str, credentials_file: str) -> Any:
    session = botocore.session.Session(profile=profile or None)
    if config_file:
        session.set_config_variable("config_file", config_file)
    if credentials_file:
        session.set_config_variable("credentials_file", credentials_file)
    resolver = session.get_component("credential_provider")
    # A user's profile is asked, never the machine: these three would find rights that the user does not have.
    for ambient in ("env", "container-role", "iam-role"):
        resolver.remove(ambient)
    return session


def _unusable(given: Credentials, reason: Reason, error: Exception | None) -> SourceError:
    profile = given.profile or "default"
    cause = f": {type(error).__name__}" if error is not None else ""
    return SourceError(
        reason,
        f"the profile {profile!r} gives no credentials{cause}",
        next_step=f"run `aws sts get-caller-identity --profile {profile}` and repair what it reports.",
    )


def local_credentials(source: ResolvedSource, mode: str | None, env: Mapping[str, str] = os.environ) -> Credentials:
    """What the user who runs a command has for `source`. `mode` is `spec.identity.mode`."""
    if source.uri.scheme != "s3" or mode == "None" or source.source.options.get("unsigned") == "true":
        return Credentials()
    return environment_credentials(env)


def environment_credentials(env: Mapping[str, str]) -> Credentials:
    """Keys in the environment, else a profile that exists, else none. An empty variable counts as unset."""
    access_key, secret_key = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key and not env.get("AWS_PROFILE"):
        return Credentials("static", access_key, secret_key, env.get("AWS_SESSION_TOKEN") or "")
    home = env.get("HOME") or os.path.expanduser("~")
    config = env.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config")
    secrets = env.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    profile = env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE") or ""
    given = Credentials("profile", profile=profile, config_file=config, credentials_file=secrets)
    if profile or _has_default(given):
        return given
    return Credentials()


def _has_default(given: Credentials) -> bool:
    if not (os.path.exists(given.config_file) or os.path.exists(given.credentials_file)):
        return False
    try:
        return _session("", given.config_file, given.credentials_file).get_credentials() is not None
    except botocore.exceptions.BotoCoreError:
        return False
