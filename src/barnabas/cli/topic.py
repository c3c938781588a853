"""`barnabas topic`: create, list, describe, alter, delete, trim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import (
    BootstrapOption,
    OutputOption,
    TopicArgument,
    TopicsArgument,
    examples,
    parse_settings,
)
from barnabas.cli.output import Output, format_table, show, show_rows
from barnabas.cli.session import administer
from barnabas.cli.topic_trim import trim
from barnabas.core.ids import uuid_text

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.topics import CreatedTopic
    from barnabas.client.metadata import TopicInfo

app = typer.Typer(
    help="Create, list, describe, alter, delete and trim topics.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

app.command(
    epilog=examples("barnabas topic trim orders --before @7d", "barnabas topic trim orders --before -1000 -p 0")
)(trim)

ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
]


@app.command(
    epilog=examples(
        "barnabas topic create orders -p 6 -r 3",
        "barnabas topic create orders -c retention.ms=86400000 -c cleanup.policy=compact",
        "barnabas topic create orders -p 6 --validate-only",
    )
)
def create(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="The broker's default.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="The broker's default.")
    ] = None,
    config: ConfigOption = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only say whether it would work.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic."""
    settings = parse_settings(config)

    async def work(admin: Admin) -> CreatedTopic:
        from barnabas.client.admin.topics import BROKER_DEFAULT

        return await admin.topics.create(
            name,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=settings,
            validate_only=validate_only,
        )

    created = administer(bootstrap, work)
    row = {
        "topic": created.name,
        "topic_id": uuid_text(created.topic_id),
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
    }
    show(row, output, f"{'could create' if validate_only else 'created'} topic {name}")


@app.command("list", epilog=examples("barnabas topic list", "barnabas topic list --internal -o json"))
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also those that the broker keeps for itself.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics."""

    async def work(admin: Admin) -> list[TopicInfo]:
        return await admin.topics.list(internal=internal)

    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replicas) for p in topic.partitions), default=0),
            "topic_id": uuid_text(topic.topic_id),
        }
        for topic in administer(bootstrap, work)
    ]
    show_rows(rows, output)


@app.command(epilog=examples("barnabas topic describe orders", "barnabas topic describe orders --all-configs -o yaml"))
def describe(
    name: TopicArgument,
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Also settings that have their defaults.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a topic's settings, and each partition's leader, replicas and offsets.

    ISR are the replicas in sync; ELR are others that are known to be complete, so that they may lead.
    """

    async def work(admin: Admin) -> dict[str, Any]:
        from barnabas.cli.topic_state import describe_topic

        return await describe_topic(admin, name, all_configs=all_configs)

    found = administer(bootstrap, work)
    settings = "\n".join(f"  {key}={value}" for key, value in found["configs"].items()) or "  (defaults)"
    show(found, output, f"topic {name}  id {found['topic_id']}\n{settings}\n{format_table(found['partitions'])}")


@app.command(
    epilog=examples(
        "barnabas topic alter orders -p 12", "barnabas topic alter orders -c retention.ms=3600000 -d segment.bytes"
    )
)
def alter(
    name: TopicArgument,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", "-d", metavar="KEY", help="Back to the inherited value.")
    ] = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="Grow to that many.")] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a topic's settings while it serves, or add partitions."""
    settings = parse_settings(config)
    if not settings and not delete_config and partitions is None:
        raise typer.BadParameter("nothing to alter: give --config, --delete-config or --partitions")

    async def work(admin: Admin) -> None:
        from barnabas.client.admin.configs import ResourceType

        if settings or delete_config:
            await admin.configs.alter(ResourceType.TOPIC, name, set_=settings, delete=delete_config or ())
        if partitions is not None:
            await admin.partitions.create(name, partitions)

    administer(bootstrap, work)
    changes = {"topic": name, "set": settings, "deleted": delete_config or [], "partitions": partitions}
    show(changes, output, f"altered topic {name}")


@app.command(epilog=examples("barnabas topic delete orders clicks"))
def delete(
    names: TopicsArgument,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete topics with all their records."""

    async def work(admin: Admin) -> None:
        await admin.topics.delete_many(names)

    administer(bootstrap, work)
    show([{"topic": name} for name in names], output, "\n".join(f"deleted topic {name}" for name in names))
