"""Kafka's configuration keys that have no effect here, each with the reason.

A file that was written for Kafka must load: these keys are accepted with a warning, whatever their value. They are
named one by one, and not by a prefix, so that a misspelt key is still found out.
"""

from __future__ import annotations


def _reasons(groups: dict[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in groups.items() for name in names.split()}


IGNORED_TOPIC_KEYS = _reasons(
    {
        "segments are never preallocated": "preallocate",
        "tiered storage is not served": """
            local.retention.bytes local.retention.ms remote.log.copy.disable remote.log.delete.on.disable""",
        "batches are never converted to an older format": """
            message.downconversion.enable message.format.version""",
        "replaced by message.timestamp.before.max.ms and message.timestamp.after.max.ms": """
            message.timestamp.difference.max.ms""",
    }
)

IGNORED_BROKER_KEYS = _reasons(
    {
        "a broker is one event loop, with no pools of threads to size": """
            background.threads group.coordinator.threads group.coordinator.background.threads num.io.threads
            num.network.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads
            queued.max.requests share.coordinator.threads log.cleaner.threads""",
        "the cluster's metadata is kept in a metadata store, not in a quorum of controllers": """
            process.roles controller.quorum.append.linger.ms controller.quorum.auto.join.enable
            controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
            controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
            controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
            controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
            controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
            controller.socket.timeout.ms early.start.listeners initial.broker.registration.timeout.ms
            internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
            internal.metadata.max.batch.size.in.bytes metadata.log.dir metadata.log.max.record.bytes.between.snapshots
            metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.min.bytes
            metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
            metadata.max.retention.ms server.max.startup.time.ms""",
        "ZooKeeper is spoken to in another way: see zookeeper.connect and barnabas.zookeeper.auth": """
            zookeeper.clientCnxnSocket zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
            zookeeper.set.acl zookeeper.ssl.client.enable zookeeper.sync.time.ms""",
        "groups have no configuration of their own, so there is nothing to limit": """
            group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
            group.consumer.max.session.timeout.ms group.consumer.min.assignment.interval.ms
            group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms""",
        "the coordinator of groups works in another way": """
            group.consumer.regex.refresh.interval.ms group.coordinator.append.linger.ms
            group.coordinator.cached.buffer.max.bytes group.coordinator.new.enable
            group.coordinator.rebalance.protocols offsets.commit.required.acks offsets.commit.timeout.ms
            offsets.load.buffer.size offsets.topic.compression.codec""",
        "share groups and streams groups are not served": """
            group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
            group.share.enable group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
            group.share.max.assignment.interval.ms group.share.max.delivery.count.limit group.share.max.groups
            group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
            group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
            group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
            group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
            group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
            group.share.partition.max.record.locks group.share.persister.class.name
            group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.assignment.interval.ms
            group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
            group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
            group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
            group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
            group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
            share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
            share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
            share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
            share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
            share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
            share.coordinator.state.topic.segment.bytes share.coordinator.write.timeout.ms
            share.fetch.purgatory.purge.interval.requests""",
        "the coordinator of transactions works in another way": """
            add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
            transaction.abort.timed.out.transaction.cleanup.interval.ms
            transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size""",
        "transactions in two phases are not served": "transaction.two.phase.commit.enable",
        "a broker that stops always hands over what it leads": """
            controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms""",
        "the controller learns of a failed directory and allows unclean elections at once": """
            log.dir.failure.timeout.ms unclean.leader.election.interval.ms""",
        "logs are not moved between directories": """
            cordoned.log.dirs replica.alter.log.dirs.io.max.bytes.per.second""",
        "brokers talk to each other with settings of their own": """
            replica.socket.receive.buffer.bytes request.timeout.ms""",
        "compaction is not throttled": "log.cleaner.io.max.bytes.per.second",
        "quotas are not served yet": """
            alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
            client.quota.callback.class controller.quota.window.num controller.quota.window.size.seconds
            max.connection.creation.rate max.connections.per.ip.overrides quota.window.num quota.window.size.seconds""",
        "replication is throttled without windows: what was sent is paid off at the rate": """
            replication.quota.window.num replication.quota.window.size.seconds""",
        "TLS is not served yet": """
            ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
            ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
            ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
            ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
            ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
            ssl.truststore.type""",
        "authentication is not served yet": """
            connection.failed.authentication.delay.ms connections.max.reauth.ms
            delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.master.key
            delegation.token.max.lifetime.ms delegation.token.secret.key principal.builder.class
            sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
            sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
            sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
            sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
            sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
            sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
            sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
            sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
            sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
            sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
            sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
            sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
            sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
            sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
            sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
            sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
            sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
            sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
            sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
            sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
            sasl.server.max.receive.size security.providers super.users allow.everyone.if.no.acl.found""",
        "tiered storage is not served": """
            follower.fetch.last.tiered.offset.enable
            log.local.retention.bytes log.local.retention.ms remote.fetch.max.wait.ms
            remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
            remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
            remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
            remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
            remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
            remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
            remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
            remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
            remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
            remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
            remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
            remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
            remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix""",
        "the metrics are Prometheus's: see barnabas.metrics.port": """
            auto.include.jmx.reporter kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters
            metrics.num.samples metrics.recording.level metrics.sample.window.ms telemetry.max.bytes""",
        "waiting requests are dropped when they are answered, not purged at intervals": """
            delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
            producer.purgatory.purge.interval.requests""",
        "segments are never preallocated": "log.preallocate",
        "batches are never converted to an older format": """
            log.message.downconversion.enable log.message.format.version""",
        "replaced by log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms": """
            log.message.timestamp.difference.max.ms""",
        "removed from Kafka": """
            broker.id.generation.enable control.plane.listener.name eligible.leader.replicas.enable
            inter.broker.protocol.version reserved.broker.max.id""",
        "the operating system's own choice is used": """
            socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size""",
        "only what is tested is offered": "unstable.api.versions.enable unstable.feature.versions.enable",
        "values are read as they stand": "config.providers",
        "background work begins when the broker serves": "log.initial.task.delay.ms",
    }
)
