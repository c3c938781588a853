"""The broker's configuration keys that have an effect: one table with type, default, range and documentation.

Names, types, ranges and defaults are Kafka's. The few defaults that differ say why beside them. Keys of Kafka's without
an effect are in `ignored_keys`; our own, for what Kafka has no key for, begin with `barnabas.`.
"""

from __future__ import annotations

from barnabas.core.config import ConfigKey, ConfigTable, ConfigType, Synonym, UpdateMode
from barnabas.core.ignored_keys import IGNORED_BROKER_KEYS

BOOLEAN, STRING, SHORT, INT, LONG, DOUBLE, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.SHORT,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MIB = 1 << 20

CLEANUP_POLICIES = ("compact", "delete")
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SECURITY_PROTOCOLS = ("PLAINTEXT",)
UNSERVED_SECURITY_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")

# One key, two or three lines: a table that is easier to read than one argument per line.
# fmt: off
_IDENTITY = (
    ConfigKey("node.id", INT, None, minimum=0, synonyms=(Synonym("broker.id"),),
        doc="The number of this broker in its cluster; no two brokers may share one. Else broker.id."),
    # Kafka demands a number; a broker that is alone needs no choice.
    ConfigKey("broker.id", INT, 1, minimum=0,
        doc="The older name of node.id."),
    ConfigKey("broker.rack", STRING, None,
        doc="The rack or zone that this broker stands in; replicas spread over racks."),
    ConfigKey("broker.heartbeat.interval.ms", INT, 2_000, minimum=1,
        doc="How often a broker tells the controller that it is alive."),
    ConfigKey("broker.session.timeout.ms", INT, 9_000, minimum=1,
        doc="How long the controller waits for a sign of life before it fences a broker."),
)

_METADATA_STORE = (
    ConfigKey("zookeeper.connect", STRING, None,
        doc="Where the cluster's metadata is kept: ZooKeeper's servers, as host:port,host:port/path. Else, for brokers "
            "on one machine, it is a file."),
    ConfigKey("barnabas.metadata.file", STRING, None,
        doc="The file that brokers of one machine share for the cluster's metadata. Else one in the first of log.dirs, "
            "for a broker that is alone."),
    # Kafka's is 18 s, to sit out a collection of garbage; no pause here comes near that.
    ConfigKey("zookeeper.session.timeout.ms", INT, 6_000, minimum=1,
        doc="How long ZooKeeper waits for a sign of life before the controller may be replaced."),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None, minimum=1,
        synonyms=(Synonym("zookeeper.session.timeout.ms"),),
        doc="How long to wait for ZooKeeper's answer before trying again; else zookeeper.session.timeout.ms."),
    ConfigKey("barnabas.zookeeper.auth", PASSWORD, None,
        doc="user:password for ZooKeeper's digest scheme. What is written there is then that user's alone."),
)

_LISTENERS = (
    # Kafka opens every interface; without encryption, ours starts on loopback.
    ConfigKey("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",),
        doc="Where to listen, as NAME://host:port. An empty host means every interface, port 0 a free port."),
    ConfigKey("advertised.listeners", LIST, None,
        doc="The addresses that clients are told, by listener name; one that is left out advertises its own address."),
    ConfigKey("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, as NAME:PROTOCOL. PLAINTEXT is the one that is served."),
    ConfigKey("inter.broker.listener.name", STRING, None,
        doc="The listener on which brokers talk to each other; else the one named PLAINTEXT, else the first."),
    ConfigKey("security.inter.broker.protocol", STRING, "PLAINTEXT", choices=SECURITY_PROTOCOLS,
        unserved=UNSERVED_SECURITY_PROTOCOLS,
        doc="The security protocol between brokers, where inter.broker.listener.name is not set."),
    ConfigKey("controller.listener.names", LIST, (),
        doc="Listeners of Kafka's controllers. They are not opened: controllers here need none of their own."),
)

_CONNECTIONS = (
    ConfigKey("socket.request.max.bytes", INT, 100 * MIB, minimum=1,
        doc="The largest request that is accepted; a longer one closes its connection."),
    # Kafka's are 100 KiB; sized by the system, 16 % more was produced and 20 % more consumed in alternating runs.
    ConfigKey("socket.send.buffer.bytes", INT, -1, minimum=1, also=(-1,),
        doc="The send buffer of each connection; -1 leaves it to the operating system."),
    ConfigKey("socket.receive.buffer.bytes", INT, -1, minimum=1, also=(-1,),
        doc="The receive buffer of each connection; -1 leaves it to the operating system."),
    ConfigKey("connections.max.idle.ms", LONG, 600_000,
        doc="How long a connection may be silent before it is closed; a negative value means for ever."),
    ConfigKey("max.connections", INT, MAX_INT, minimum=0, update=CLUSTER_WIDE,
        doc="How many connections the broker holds at once; further ones are closed as they come."),
    ConfigKey("max.connections.per.ip", INT, MAX_INT, minimum=0, update=CLUSTER_WIDE,
        doc="How many connections one address may hold at once."),
    # Kafka's is unlimited; here the memory for requests is bounded from the start.
    ConfigKey("queued.max.request.bytes", LONG, 256 * MIB, minimum=1, also=(-1,),
        doc="How many bytes of requests may wait in memory before no more are read; -1 sets no limit."),
    ConfigKey("fetch.max.bytes", INT, 55 * MIB, minimum=1024,
        doc="The most that one fetch response carries."),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1_000, minimum=0,
        doc="How many incremental fetch sessions are remembered; the others send full requests."),
    ConfigKey("max.request.partition.size.limit", INT, 2_000, minimum=1,
        doc="The most partitions that one DescribeTopicPartitions response carries."),
)

_TOPICS = (
    ConfigKey("auto.create.topics.enable", BOOLEAN, True,
        doc="Whether a client that asks for a topic that does not exist may bring it into being."),
    ConfigKey("delete.topic.enable", BOOLEAN, True,
        doc="Whether topics can be deleted."),
    ConfigKey("num.partitions", INT, 1, minimum=1,
        doc="The partitions of a topic that is created without a number."),
    ConfigKey("default.replication.factor", INT, 1, minimum=1,
        doc="The replicas of a topic that is created without a number."),
    ConfigKey("min.insync.replicas", INT, 1, minimum=1, update=CLUSTER_WIDE,
        doc="How many replicas must be in sync before a write with acks=all is accepted."),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, update=CLUSTER_WIDE,
        doc="Whether a replica that was not in sync may lead when no other is left. Acknowledged records may be lost."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, True,
        doc="Whether the controller gives leaderships back to preferred replicas by itself."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, 300, minimum=1,
        doc="How often the controller looks whether leaderships are to be given back."),
    ConfigKey("leader.imbalance.per.broker.percentage", INT, 10, minimum=0,
        doc="The share of partitions that prefer a broker and may be led elsewhere before they are given back to it."),
    # Kafka's is 30 s. A leader is known to be gone within a few seconds; a follower that hangs should not cost more.
    ConfigKey("replica.lag.time.max.ms", LONG, 10_000, minimum=1,
        doc="How long a follower may lag behind the leader before it leaves the in-sync replicas."),
    ConfigKey("replica.lag.max.messages", LONG, 0, minimum=0,
        doc="By how many records a follower may be behind before it leaves the in-sync replicas; 0: by any number."),
    ConfigKey("num.replica.fetchers", INT, 1, minimum=1, update=CLUSTER_WIDE,
        doc="How many fetchers copy from each broker that leads."),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, minimum=0,
        doc="How long a leader may wait for news before it answers a follower."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, minimum=0,
        doc="How much a follower asks for at the least."),
    ConfigKey("replica.fetch.max.bytes", INT, 1024 * 1024, minimum=0,
        doc="How much of one partition a follower asks for at a time; a larger batch comes whole."),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10 * MIB, minimum=0,
        doc="How much a follower asks for at a time over all partitions; a larger batch comes whole."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1_000, minimum=0,
        doc="The longest pause after a failure before a follower tries again."),
    ConfigKey("replica.socket.timeout.ms", INT, 30_000, minimum=1,
        doc="How long a follower waits for its leader's answer."),
    ConfigKey("replica.selector.class", STRING, None, choices=("", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        doc="Which replica a consumer reads from: one in its rack (client.rack), or always the leader."),
    ConfigKey("leader.replication.throttled.rate", LONG, MAX_LONG, minimum=0, update=CLUSTER_WIDE,
        doc="How many bytes a second this broker gives to replicas that leader.replication.throttled.replicas bounds."),
    ConfigKey("follower.replication.throttled.rate", LONG, MAX_LONG, minimum=0, update=CLUSTER_WIDE,
        doc="How many bytes a second this broker copies for what follower.replication.throttled.replicas bounds."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, 5_000, minimum=1,
        doc="How often the high watermarks are written to disk."),
    ConfigKey("producer.id.expiration.ms", INT, 86_400_000, minimum=1, update=CLUSTER_WIDE,
        doc="How long a partition remembers an idempotent producer that no longer writes."),
    ConfigKey("producer.id.expiration.check.interval.ms", INT, 600_000, minimum=1,
        doc="How often forgotten producers are looked for."),
)

_LOG = (
    # Not Kafka's directory, which may hold another cluster's data.
    ConfigKey("log.dir", LIST, ("/tmp/barnabas-logs",),
        doc="Where the logs are kept, unless log.dirs is set."),
    ConfigKey("log.dirs", LIST, None, synonyms=(Synonym("log.dir"),),
        doc="Where the logs are kept: one directory per disk. One that fails takes only its own partitions offline."),
    ConfigKey("log.segment.bytes", INT, 1 << 30, minimum=MIB, update=CLUSTER_WIDE,
        doc="The size at which a new segment begins."),
    ConfigKey("log.roll.ms", LONG, None, minimum=1, update=CLUSTER_WIDE, synonyms=(Synonym("log.roll.hours", HOUR_MS),),
        doc="The age at which a new segment begins; else log.roll.hours."),
    ConfigKey("log.roll.hours", INT, 168, minimum=1,
        doc="The age at which a new segment begins, in hours."),
    ConfigKey("log.roll.jitter.ms", LONG, None, minimum=0, update=CLUSTER_WIDE,
        synonyms=(Synonym("log.roll.jitter.hours", HOUR_MS),),
        doc="The most that is taken off the age at random, so that not all roll at once; else log.roll.jitter.hours."),
    ConfigKey("log.roll.jitter.hours", INT, 0, minimum=0,
        doc="The most that is taken off a segment's age at random, in hours."),
    ConfigKey("log.retention.ms", LONG, None, minimum=1, also=(-1,), update=CLUSTER_WIDE,
        synonyms=(Synonym("log.retention.minutes", MINUTE_MS), Synonym("log.retention.hours", HOUR_MS)),
        doc="How long records are kept; -1 keeps them for ever. Else log.retention.minutes, else log.retention.hours."),
    ConfigKey("log.retention.minutes", INT, None, minimum=1, also=(-1,),
        doc="How long records are kept, in minutes; else log.retention.hours."),
    ConfigKey("log.retention.hours", INT, 168, minimum=1, also=(-1,),
        doc="How long records are kept, in hours; -1 keeps them for ever."),
    ConfigKey("log.retention.bytes", LONG, -1, update=CLUSTER_WIDE,
        doc="How much of a partition is kept; -1 sets no limit."),
    ConfigKey("log.retention.check.interval.ms", LONG, 300_000, minimum=1,
        doc="How often segments past their time are looked for."),
    ConfigKey("log.cleanup.policy", LIST, ("delete",), choices=CLEANUP_POLICIES, update=CLUSTER_WIDE,
        doc="What becomes of old records: 'delete' removes segments past the retention, 'compact' keeps the newest "
            "record of every key, an empty list keeps all."),
    ConfigKey("log.cleaner.enable", BOOLEAN, True,
        doc="Whether the cleaner runs, which compacts the topics whose policy says so."),
    ConfigKey("log.cleaner.backoff.ms", LONG, 15_000, minimum=0, update=CLUSTER_WIDE,
        doc="How long the cleaner sleeps when no log wants compaction."),
    ConfigKey("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, update=CLUSTER_WIDE, minimum=MIB,
        doc="The memory for the keys of one round of compaction, 24 bytes each; the rest is left to the next."),
    ConfigKey("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, update=CLUSTER_WIDE, minimum=0.01, maximum=1.0,
        doc="How full the buffer for keys may get; a fuller one holds more keys, and takes longer to search."),
    ConfigKey("log.cleaner.io.buffer.size", INT, 512 * 1024, minimum=0, update=CLUSTER_WIDE,
        doc="How much the cleaner reads and writes at once."),
    ConfigKey("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, minimum=0, maximum=1, update=CLUSTER_WIDE,
        doc="The share of a log that must be dirty, not yet compacted, before it is compacted again."),
    ConfigKey("log.cleaner.min.compaction.lag.ms", LONG, 0, minimum=0, update=CLUSTER_WIDE,
        doc="How long a record stays uncompacted at the least."),
    ConfigKey("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, minimum=1, update=CLUSTER_WIDE,
        doc="How long a record may stay uncompacted, however little of the log is dirty."),
    ConfigKey("log.cleaner.delete.retention.ms", LONG, 86_400_000, minimum=0, update=CLUSTER_WIDE,
        doc="How long a tombstone is kept after compaction has removed what it deletes, for readers to see it."),
    ConfigKey("log.segment.delete.delay.ms", LONG, 60_000, minimum=0, update=CLUSTER_WIDE,
        doc="How long the files of a removed segment stay, renamed to .deleted, for readers that still use them."),
    ConfigKey("log.index.size.max.bytes", INT, 10 * MIB, minimum=4, update=CLUSTER_WIDE,
        doc="The largest an index may grow; a full one begins a new segment."),
    ConfigKey("log.index.interval.bytes", INT, 4096, minimum=0, update=CLUSTER_WIDE,
        doc="How many bytes of log lie between two index entries."),
    ConfigKey("log.flush.interval.messages", LONG, MAX_LONG, minimum=1, update=CLUSTER_WIDE,
        doc="How many records may be appended to a partition before it is flushed to disk."),
    ConfigKey("log.flush.interval.ms", LONG, None, minimum=0, update=CLUSTER_WIDE,
        synonyms=(Synonym("log.flush.scheduler.interval.ms"),),
        doc="How long an appended record may wait for its flush to disk; else log.flush.scheduler.interval.ms."),
    ConfigKey("log.flush.scheduler.interval.ms", LONG, MAX_LONG, minimum=1,
        doc="How often logs that are due for a flush are looked for."),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", INT, 60_000, minimum=0,
        doc="How often the recovery points, up to which a start need not scan, are written to disk."),
    ConfigKey("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, minimum=0,
        doc="How often the log start offsets are written to disk."),
    ConfigKey("log.message.timestamp.type", STRING, "CreateTime", choices=TIMESTAMP_TYPES, update=CLUSTER_WIDE,
        doc="Whether a record carries the time that its producer gave it, or that at which it was appended."),
    ConfigKey("log.message.timestamp.before.max.ms", LONG, MAX_LONG, minimum=0, update=CLUSTER_WIDE,
        doc="How far a producer's timestamp may lie in the past."),
    ConfigKey("log.message.timestamp.after.max.ms", LONG, HOUR_MS, minimum=0, update=CLUSTER_WIDE,
        doc="How far a producer's timestamp may lie in the future."),
    ConfigKey("message.max.bytes", INT, 1_048_588, minimum=0, update=CLUSTER_WIDE,
        doc="The largest record batch that is accepted, compressed as it comes."),
    ConfigKey("compression.type", STRING, "producer", choices=COMPRESSION_TYPES, update=CLUSTER_WIDE,
        doc="How batches are compressed on disk; 'producer' keeps them as they come."),
    ConfigKey("compression.gzip.level", INT, -1, minimum=1, maximum=9, also=(-1,), update=CLUSTER_WIDE,
        doc="The effort of gzip where the broker compresses; -1 is gzip's own default."),
    ConfigKey("compression.lz4.level", INT, 9, minimum=1, maximum=17, update=CLUSTER_WIDE,
        doc="The effort of lz4 where the broker compresses."),
    ConfigKey("compression.zstd.level", INT, 3, minimum=-131_072, maximum=22, update=CLUSTER_WIDE,
        doc="The effort of zstd where the broker compresses."),
)

_GROUPS = (
    ConfigKey("offsets.topic.num.partitions", INT, 50, minimum=1,
        doc="The partitions of __consumer_offsets, over which groups spread. Not to be changed once it is there."),
    ConfigKey("offsets.topic.replication.factor", SHORT, 3, minimum=1,
        doc="The replicas of __consumer_offsets. Unless it is set, fewer will do where there are fewer brokers."),
    ConfigKey("offsets.topic.segment.bytes", INT, 100 * MIB, minimum=1,
        doc="The size of a segment of __consumer_offsets: small ones are compacted and loaded quickly."),
    ConfigKey("offsets.retention.minutes", INT, 10_080, minimum=1,
        doc="How long the committed offsets of a group without members are kept."),
    ConfigKey("offsets.retention.check.interval.ms", LONG, 600_000, minimum=1,
        doc="How often offsets past their retention are looked for."),
    ConfigKey("offset.metadata.max.bytes", INT, 4096,
        doc="The longest text that may be committed with an offset."),
    ConfigKey("group.min.session.timeout.ms", INT, 6_000,
        doc="The shortest session that a member of a classic group may ask for."),
    ConfigKey("group.max.session.timeout.ms", INT, 1_800_000,
        doc="The longest session that a member of a classic group may ask for."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, 3_000,
        doc="How long a new classic group waits for further members before its first rebalance."),
    ConfigKey("group.max.size", INT, MAX_INT, minimum=1,
        doc="The most members of a classic group."),
    ConfigKey("group.consumer.session.timeout.ms", INT, 45_000, minimum=1,
        doc="How long a member of a consumer group may be silent before it is taken for dead."),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, 5_000, minimum=1,
        doc="How often members of consumer groups are told to send a heartbeat."),
    ConfigKey("group.consumer.max.size", INT, MAX_INT, minimum=1,
        doc="The most members of a consumer group."),
    ConfigKey("group.consumer.assignors", LIST, ("uniform", "range"), choices=("uniform", "range"),
        doc="The assignors that members of consumer groups may choose; the first is the default."),
    ConfigKey("group.consumer.assignment.interval.ms", INT, 1_000, minimum=0, update=CLUSTER_WIDE,
        doc="The least time between two assignments of a consumer group."),
    ConfigKey("group.consumer.migration.policy", STRING, "bidirectional",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        doc="Whether a group may go over from the classic to the consumer protocol, or back, while it has members."),
)

_TRANSACTIONS = (
    ConfigKey("transaction.state.log.num.partitions", INT, 50, minimum=1,
        doc="The partitions of __transaction_state, over which transactional ids spread. Not to be changed later."),
    ConfigKey("transaction.state.log.replication.factor", SHORT, 3, minimum=1,
        doc="The replicas of __transaction_state. Unless it is set, fewer will do where there are fewer brokers."),
    ConfigKey("transaction.state.log.min.isr", INT, 2, minimum=1,
        doc="min.insync.replicas of __transaction_state."),
    ConfigKey("transaction.state.log.segment.bytes", INT, 100 * MIB, minimum=1,
        doc="The size of a segment of __transaction_state."),
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, minimum=1,
        doc="The longest that a transaction may ask to stay open."),
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, minimum=1,
        doc="How long a transactional id without a transaction is remembered."),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, True, update=CLUSTER_WIDE,
        doc="Whether a transactional batch of an older client is checked with its coordinator before it is taken."),
)

# Keys that would change who may do what, or where data lives, must not be passed over: only "off" is accepted.
_REFUSED = (
    ConfigKey("authorizer.class.name", STRING, "", choices=("",),
        doc="Authorisation is not served yet."),
    ConfigKey("create.topic.policy.class.name", ConfigType.CLASS, None, choices=("",),
        doc="Policies are Java classes, which cannot run here."),
    ConfigKey("alter.config.policy.class.name", ConfigType.CLASS, None, choices=("",),
        doc="Policies are Java classes, which cannot run here."),
    ConfigKey("remote.log.storage.system.enable", BOOLEAN, False, unserved=("true",),
        doc="Tiered storage is not served."),
)

_OWN = (
    ConfigKey("barnabas.metrics.port", INT, None, minimum=0, maximum=65_535,
        doc="The port of the Prometheus endpoint; none without it, 0 for a free one."),
    ConfigKey("barnabas.metrics.host", STRING, "127.0.0.1",
        doc="The address of the Prometheus endpoint."),
    ConfigKey("barnabas.scrub.interval.ms", LONG, 24 * HOUR_MS, minimum=-1,
        doc="How long the broker rests between two rounds in which it reads all segments to find damage; -1 for no "
            "rounds."),
    ConfigKey("barnabas.scrub.bytes.per.second", LONG, 16 * MIB, minimum=1, update=CLUSTER_WIDE,
        doc="How fast these rounds read, at the most."),
    ConfigKey("barnabas.log.level", STRING, "info", choices=("debug", "info", "warning", "error"),
        doc="The least important events that are logged."),
    ConfigKey("barnabas.log.format", STRING, "text", choices=("text", "json"),
        doc="How an event is written: for people or for programs."),
)
# fmt: on

BROKER_KEYS = ConfigTable(
    "broker",
    (
        *_IDENTITY,
        *_METADATA_STORE,
        *_LISTENERS,
        *_CONNECTIONS,
        *_TOPICS,
        *_LOG,
        *_GROUPS,
        *_TRANSACTIONS,
        *_REFUSED,
        *_OWN,
    ),
    IGNORED_BROKER_KEYS,
)
