/*
 * Copies the topic `from` into the topic `to` with Flink's KafkaSource and KafkaSink, each record as it is, in a
 * JVM with a Flink cluster of its own. Arguments: the broker, the guarantee of the sink, its codec, the directory
 * of savepoints and, if there is one to go on from, a savepoint. A line on its input stops it with a savepoint;
 * it tries again until that succeeds, and tells `savepoint PATH`; `failed CLASS: message` as Statements does.
 */
import java.nio.file.Path;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.ProducerRecord;

public class Copy {
    public static void main(String[] arguments) throws Exception {
        String savepoints = Path.of(arguments[3]).toUri().toString();
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", System.getProperty("attempts", "1000"));
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.dir", savepoints);
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("parallelism.default", "2");
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-address", "127.0.0.1");
        if (arguments.length > 4) {
            settings.setString("execution.state-recovery.path", arguments[4]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.fromSource(source(arguments[0]), WatermarkStrategy.noWatermarks(), "from")
                .uid("from")
                .sinkTo(sink(arguments[0], DeliveryGuarantee.valueOf(arguments[1]), arguments[2]))
                .uid("to");
        try {
            JobClient job = flink.executeAsync("copy");
            Thread stopping = new Thread(() -> stop(job, savepoints));
            stopping.setDaemon(true);
            stopping.start();
            job.getJobExecutionResult().get();
            stopping.join();
        } catch (Exception failure) {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                System.out.println("failed " + cause.getClass().getName() + ": " + cause.getMessage());
            }
            System.exit(1);
        }
        System.exit(0);
    }

    private static KafkaSource<ConsumerRecord<byte[], byte[]>> source(String bootstrap) {
        return KafkaSource.<ConsumerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(bootstrap)
                .setTopics("from")
                .setGroupId("copy")
                .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
                .setDeserializer(new AsRead())
                .build();
    }

    private static KafkaSink<ConsumerRecord<byte[], byte[]>> sink(
            String bootstrap, DeliveryGuarantee guarantee, String codec) {
        return KafkaSink.<ConsumerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(guarantee)
                .setTransactionalIdPrefix("copy")
                .setProperty("compression.type", codec)
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(new AsItWas())
                .build();
    }

    private static void stop(JobClient job, String savepoints) {
        try {
            System.in.read();
        } catch (java.io.IOException closed) {
            return;
        }
        while (true) {
            try {
                System.out.println("savepoint "
                        + job.stopWithSavepoint(false, savepoints, SavepointFormatType.CANONICAL).get());
                return;
            } catch (Exception again) {
                System.out.println("again " + again);
                java.util.concurrent.locks.LockSupport.parkNanos(200_000_000L);
            }
        }
    }

    static class AsRead implements KafkaRecordDeserializationSchema<ConsumerRecord<byte[], byte[]>> {
        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> read, Collector<ConsumerRecord<byte[], byte[]>> records) {
            records.collect(read);
        }

        @Override
        public TypeInformation<ConsumerRecord<byte[], byte[]>> getProducedType() {
            return TypeInformation.of(new TypeHint<ConsumerRecord<byte[], byte[]>>() {});
        }
    }

    static class AsItWas implements KafkaRecordSerializationSchema<ConsumerRecord<byte[], byte[]>> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                ConsumerRecord<byte[], byte[]> read, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(
                    "to", read.partition(), read.timestamp(), read.key(), read.value(), read.headers());
        }
    }
}
