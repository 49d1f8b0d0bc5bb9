"""API keys for gateways: `keys create`, `keys list`, `keys revoke`. A token is shown once, when it is made."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import wire
from holdfast.assembly import Holdfast
from holdfast.cli import render
from holdfast.cli.output import plain
from holdfast.cli.session import Session
from holdfast.gateway_client import Client
from holdfast.kernel.apikeys import ApiKey, Scope
from holdfast.wire import outbound


async def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for, for people.")],
    scope: Annotated[Scope, typer.Option(help="What it allows; each contains the one before.")] = "write",
    expires_in: Annotated[str | None, typer.Option(help="How long it is good: 90d. Forever if not given.")] = None,
) -> None:
    """Make an API key for this namespace. Its token is shown now, and never again."""
    async with session.caller(creates=True) as caller:
        token, key = await caller.api_keys.create(
            name, namespace=_namespace_of(caller), scope=scope, expires_in=expires_in
        )
        session.out.note(f"API key {key.id} for namespace {key.namespace!r} with scope {key.scope}. Keep its token:")
        session.out.show(wire.NewApiKeyView(token=token, key=outbound.api_key(key)), token)


async def list_keys(session: Session) -> None:
    """List the API keys of this namespace."""
    async with session.caller() as caller:
        keys = await caller.api_keys.listed(_namespace_of(caller))
        rows = [
            (key.id, plain(key.name), key.scope, f"…{key.tail}", f"{key.created_at:%Y-%m-%d}", _standing(key))
            for key in keys
        ]
        shown = render.table("id", "name", "scope", "ends in", "created", "", rows=rows, nothing="No API keys.")
        session.out.show(wire.ApiKeysView([outbound.api_key(key) for key in keys]), shown)


async def revoke(
    session: Session, id: Annotated[str, typer.Argument(help="Id of the key, as `keys list` has it.")]
) -> None:
    """Revoke an API key. It is refused from now on."""
    async with session.caller() as caller:
        key = await caller.api_keys.revoke(_namespace_of(caller), id)
        session.out.show(outbound.api_key(key), f"API key {key.id} ({key.name}) is revoked")


def _namespace_of(caller: Holdfast | Client) -> str:
    """The namespace whose keys are meant; a gateway takes that of the key which asks, and needs not be told."""
    return caller.namespace if isinstance(caller, Holdfast) else ""


def _standing(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "" if key.expires_at is None else f"expires {key.expires_at:%Y-%m-%d %H:%M}Z"
