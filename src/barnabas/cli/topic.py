"""`barnabas topic`: create, list, describe, alter, delete, trim."""

from __future__ import annotations

from typing import Annotated, Any

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
from barnabas.cli.session import choose_partitions, parse_place, run
from barnabas.client.admin import configs, topics
from barnabas.client.admin.configs import Configs
from barnabas.client.admin.partitions import Partitions
from barnabas.client.admin.records import Records
from barnabas.client.admin.topics import Topics
from barnabas.client.client import Client
from barnabas.client.list_offsets import resolve_offsets
from barnabas.client.metadata import NO_LEADER, TopicInfo, TopicPartition
from barnabas.core.ids import uuid_text

app = typer.Typer(
    help="Create, list, describe, alter, delete and trim topics.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

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

    async def work(client: Client) -> topics.CreatedTopic:
        return await Topics(client).create(
            name,
            partitions=partitions or topics.BROKER_DEFAULT,
            replication_factor=replication_factor or topics.BROKER_DEFAULT,
            configs=settings,
            validate_only=validate_only,
        )

    created = run(bootstrap, work)
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

    async def work(client: Client) -> list[TopicInfo]:
        return await Topics(client).list(internal=internal)

    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replicas) for p in topic.partitions), default=0),
            "topic_id": uuid_text(topic.topic_id),
        }
        for topic in run(bootstrap, work)
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

    async def work(client: Client) -> dict[str, Any]:
        topic = await Topics(client).describe(name)
        states = await Partitions(client).states(topic)
        entries = await Configs(client).describe(configs.ResourceType.TOPIC, name)
        return {
            "topic": topic.name,
            "topic_id": uuid_text(topic.topic_id),
            "internal": topic.is_internal,
            "configs": {
                entry.name: entry.value
                for entry in entries.values()
                if all_configs or entry.source is configs.ConfigSource.TOPIC
            },
            "partitions": [
                {
                    "partition": state.info.partition,
                    "leader": None if state.info.leader == NO_LEADER else state.info.leader,
                    "leader_epoch": state.info.leader_epoch,
                    "replicas": list(state.info.replicas),
                    "isr": list(state.info.isr),
                    "elr": list(state.info.eligible_leader_replicas),
                    "last_known_elr": list(state.info.last_known_elr),
                    "log_start_offset": state.log_start_offset,
                    "end_offset": state.end_offset,
                }
                for state in states
            ],
        }

    found = run(bootstrap, work)
    settings = "\n".join(f"  {key}={value}" for key, value in found["configs"].items()) or "  (defaults)"
    table = f"topic {name}  id {found['topic_id']}\n{settings}\n{format_table(found['partitions'])}"
    show(found, output, table)


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

    async def work(client: Client) -> None:
        if settings or delete_config:
            await Configs(client).alter(configs.ResourceType.TOPIC, name, set_=settings, delete=delete_config or ())
        if partitions is not None:
            await Partitions(client).create(name, partitions)

    run(bootstrap, work)
    changes = {"topic": name, "set": settings, "deleted": delete_config or [], "partitions": partitions}
    show(changes, output, f"altered topic {name}")


@app.command(epilog=examples("barnabas topic delete orders clicks"))
def delete(
    names: TopicsArgument,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete topics with all their records."""

    async def work(client: Client) -> None:
        for name in names:
            await Topics(client).delete(name)

    run(bootstrap, work)
    show([{"topic": name} for name in names], output, "\n".join(f"deleted topic {name}" for name in names))


@app.command(
    epilog=examples("barnabas topic trim orders --before @7d", "barnabas topic trim orders --before -1000 -p 0")
)
def trim(
    name: TopicArgument,
    before: Annotated[
        str, typer.Option("--before", metavar="OFFSET", help="The first record to keep: 1234, -10, @2h, end.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop the oldest records of a topic for good."""

    async def work(client: Client) -> dict[TopicPartition, int]:
        place = parse_place(before, "--before")
        partitions = choose_partitions(await Topics(client).describe(name), partition)
        return await Records(client).delete(await resolve_offsets(client, partitions, place))

    trimmed = sorted(run(bootstrap, work).items())
    rows = [{"topic": p.topic, "partition": p.partition, "log_start_offset": low} for p, low in trimmed]
    show_rows(rows, output)
