// A member of a consumer group on KafkaJS; see journal.py for its arguments and for what it writes.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [address, groupId, topic, path, member, ...rest] = process.argv.slice(2)
const settings = Object.fromEntries(rest.map((each) => each.split('=')))
const journal = fs.openSync(path, 'a')

function write(event, numbers) {
  fs.writeSync(journal, `${Date.now()} ${member} ${event} ${numbers.join(' ')}\n`)
}

const kafka = new Kafka({ brokers: [address], logLevel: logLevel.ERROR })
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: Number(settings.sessionTimeout),
  rebalanceTimeout: 10000,
  heartbeatInterval: 500,
  maxWaitTimeInMs: 200,
})

// Its rebalances are eager: what a member owns ends with the next one, and comes with the next join.
let owned = []
function own(partitions) {
  if (owned.length) write('lose', owned)
  owned = partitions
  if (owned.length) write('gain', owned)
}
consumer.on(consumer.events.REBALANCING, () => own([]))
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => own(payload.memberAssignment[topic] || []))

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => write('saw', [partition, message.offset]),
  })
}

process.on('SIGTERM', async () => {
  own([])
  await consumer.disconnect()
  process.exit(0)
})

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
