// What kafkajs makes of a broker, as ../go has it: it makes a compacted topic, produces plain, packed and
// idempotently, reads the topic as a group up to its ends, commits, and asks what was committed.
//
//   node clients.mjs BOOTSTRAP TOPIC GROUP [fill]
//
// Prints one JSON object: the records, and the committed offset of each partition.
//
//   node clients.mjs BOOTSTRAP TOPIC GROUP move SOURCE COUNT
//
// Moves so many records from SOURCE to TOPIC in transactions, every third of which is aborted; prints nothing.
import kafkajs from 'kafkajs'

const PARTITIONS = [0, 1]
const PER_CODEC = 40
const KEYS = 10
const [bootstrap, topic, group, task, source, count] = process.argv.slice(2)

// The records of one producer: every seventh is a tombstone.
const batch = codec =>
  Array.from({ length: PER_CODEC }, (_, number) => ({
    key: `key${number % KEYS}`,
    value: number % 7 ? `${codec} ${number}, and what a codec finds to pack: aaaaaaaaaaaaaaaaaaaaaaaa` : null,
    headers: { codec }
  }))

const atEnds = (next, ends) => PARTITIONS.every(partition => next[partition] >= ends[partition])

class KafkaJs {
  constructor () {
    process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
    this.kafka = new kafkajs.Kafka({ brokers: [bootstrap], logLevel: kafkajs.logLevel.ERROR })
    this.admin = this.kafka.admin()
  }

  async fill () {
    await this.admin.connect()
    const configEntries = [{ name: 'cleanup.policy', value: 'compact' }]
    await this.admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS.length, configEntries }] })
    for (const [codec, idempotent] of [['None', false], ['GZIP', false], ['None', true]]) {
      const producer = this.kafka.producer({ idempotent })
      await producer.connect()
      const compression = kafkajs.CompressionTypes[codec]
      await producer.send({ topic, compression, messages: batch(codec + idempotent) })
      await producer.disconnect()
    }
  }

  async move () {
    const producer = this.kafka.producer({ transactionalId: group, idempotent: true, maxInFlightRequests: 1 })
    const consumer = this.kafka.consumer({ groupId: group })
    await Promise.all([producer.connect(), consumer.connect()])
    await consumer.subscribe({ topics: [source], fromBeginning: true })
    let [done, number] = [0, 0]
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      const eachBatch = async ({ batch }) => {
        const { partition, messages } = batch
        for (const isCommit of number++ % 3 < 2 ? [true] : [false, true]) {
          const transaction = await producer.transaction()
          await transaction.send({ topic, messages: messages.map(({ key, value }) => ({ key, value })) })
          const offsets = [{ partition, offset: String(BigInt(batch.lastOffset()) + 1n) }]
          await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions: offsets }] })
          await (isCommit ? transaction.commit() : transaction.abort())
        }
        done += messages.length
        if (done >= +count) resolve()
      }
      consumer.run({ autoCommit: false, eachBatch }).catch(reject)
    })
    await Promise.all([producer.disconnect(), consumer.disconnect()])
  }

  async read () {
    await this.admin.connect()
    const ends = Object.fromEntries((await this.admin.fetchTopicOffsets(topic)).map(one => [one.partition, +one.high]))
    const consumer = this.kafka.consumer({ groupId: group })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    const [received, next] = [[], PARTITIONS.map(() => 0)]
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      const eachMessage = async ({ partition, message }) => {
        next[partition] = +message.offset + 1
        received.push({
          partition,
          offset: +message.offset,
          key: message.key.toString(),
          value: message.value?.toString() ?? null,
          codec: message.headers.codec.toString()
        })
        if (atEnds(next, ends)) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
    await consumer.commitOffsets(PARTITIONS.map(partition => ({ topic, partition, offset: String(next[partition]) })))
    await consumer.disconnect()
    const [{ partitions }] = await this.admin.fetchOffsets({ groupId: group, topics: [topic] })
    await this.admin.disconnect()
    const committed = PARTITIONS.map(partition => +partitions.find(one => one.partition === partition).offset)
    return { received, committed }
  }
}

const client = new KafkaJs()
if (task === 'move') {
  await client.move()
} else {
  if (task === 'fill') await client.fill()
  console.log(JSON.stringify(await client.read()))
}
