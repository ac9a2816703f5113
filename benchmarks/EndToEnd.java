import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produce one record, wait until it is acknowledged and consumed, print the microseconds; again and again. */
class EndToEnd {
    public static void main(String[] given) {
        String bootstrap = given[0];
        TopicPartition partition = new TopicPartition(given[1], 0);
        int warm = Integer.parseInt(given[3]);
        long[] nanoseconds = new long[warm + Integer.parseInt(given[4])];
        Properties producing = new Properties();
        producing.put("bootstrap.servers", bootstrap);
        producing.put("acks", given[2]);
        producing.put("linger.ms", "0");
        Properties consuming = new Properties();
        consuming.put("bootstrap.servers", bootstrap);
        consuming.put("enable.auto.commit", "false");
        byte[] value = new byte[100];
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
                var consumer =
                        new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int number = 0; number < nanoseconds.length; number++) {
                long began = System.nanoTime();
                var sent = producer.send(new ProducerRecord<>(partition.topic(), value));
                ConsumerRecords<byte[], byte[]> got = ConsumerRecords.empty();
                while (got.isEmpty()) {
                    got = consumer.poll(Duration.ofSeconds(10));
                }
                nanoseconds[number] = System.nanoTime() - began;
                sent.get();
                if (got.count() != 1) {
                    throw new IllegalStateException(got.count() + " records where one was sent");
                }
            }
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
        StringBuilder lines = new StringBuilder();
        for (int number = warm; number < nanoseconds.length; number++) {
            lines.append(nanoseconds[number] / 1000.0).append('\n');
        }
        System.out.print(lines);
    }
}
