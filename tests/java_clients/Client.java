// What a user of an old Java client does: writes, reads in a group, administers, and looks for transactions.
// It is compiled against each version that pom.xml pins, so it uses what the oldest of them has.
// Each line that it prints is one answer: a name, and what came of it. "half" asks for the kill of the broker.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    static final String TOPIC = "orders";
    static final String GROUP = "readers";
    static final int RECORDS = 2000;
    static final long LIMIT_SECONDS = 120;

    static String bootstrap;
    static AdminClient admin;
    static final Set<String> read = ConcurrentHashMap.newKeySet();
    static volatile boolean isDone;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = AdminClient.create(settings());
        wait(admin.createTopics(Collections.singleton(new NewTopic(TOPIC, 2, (short) 1))).all());
        List<Thread> readers = new ArrayList<>();
        for (String assignor : arguments[1].split(",")) {
            readers.add(new Thread(() -> consume(assignor)));
            readers.get(readers.size() - 1).start();
        }
        tell("sent", write());
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
        while (read.size() < RECORDS && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        isDone = true;
        for (Thread reader : readers) {
            reader.join();
        }
        tell("read", read.size());
        administer();
        tell("transactions", transactions());
        admin.close();
    }

    static Properties settings(String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int index = 0; index < pairs.length; index += 2) {
            settings.put(pairs[index], pairs[index + 1]);
        }
        return settings;
    }

    static void tell(String name, Object answer) {
        System.out.println(name + " " + answer);
    }

    static <T> T wait(KafkaFuture<T> future) throws Exception {
        return future.get(LIMIT_SECONDS, TimeUnit.SECONDS);
    }

    /** How many records were acknowledged. */
    static int write() throws Exception {
        int[] acknowledged = new int[1];
        Properties settings = settings("enable.idempotence", "true", "compression.type", "lz4", "linger.ms", "5");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(TOPIC, number % 2, "k", "v" + number), (where, problem) -> {
                    if (problem == null) {
                        acknowledged[0]++;
                    } else {
                        tell("failed", problem);
                    }
                });
                Thread.sleep(2);
                if (number == RECORDS / 2) {
                    tell("half", number);
                }
            }
        }
        return acknowledged[0];
    }

    static void consume(String assignor) {
        Properties settings = settings("group.id", GROUP, "auto.offset.reset", "earliest");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singletonList(TOPIC));
            while (!isDone) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    read.add(record.value());
                }
            }
        } catch (Exception problem) {
            tell("failed", problem);
        }
    }

    static void administer() throws Exception {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        ConfigEntry retention = new ConfigEntry("retention.ms", "-1");
        tell("nodes", wait(admin.describeCluster().nodes()).size());
        tell("topics", wait(admin.listTopics().names()));
        wait(admin.alterConfigs(Collections.singletonMap(topic, new Config(Arrays.asList(retention)))).all());
        Map<ConfigResource, Config> described =
                wait(admin.describeConfigs(Collections.singleton(topic)).all());
        tell("retention.ms", described.get(topic).get("retention.ms").value());
        Map<TopicPartition, RecordsToDelete> deleted =
                Collections.singletonMap(first, RecordsToDelete.beforeOffset(10));
        tell("deleted", wait(admin.deleteRecords(deleted).lowWatermarks().get(first)).lowWatermark());
        wait(admin.createPartitions(Collections.singletonMap(TOPIC, NewPartitions.increaseTo(3))).all());
        tell("partitions", wait(admin.describeTopics(Collections.singleton(TOPIC)).all()).get(TOPIC).partitions().size());
        tell("groups", wait(admin.listConsumerGroups().all()).iterator().next().groupId());
        tell("group", wait(admin.describeConsumerGroups(Collections.singleton(GROUP)).all()).get(GROUP).state());
        Map<TopicPartition, OffsetAndMetadata> committed =
                wait(admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata());
        Map<Integer, Long> offsets = new TreeMap<>();
        committed.forEach((partition, offset) -> offsets.put(partition.partition(), offset.offset()));
        tell("committed", offsets);
        tell("directories", wait(admin.describeLogDirs(Collections.singleton(1)).all()).get(1).size());
        tell("acls", refusal(admin.describeAcls(AclBindingFilter.ANY).values()));
        tell("tokens", refusal(admin.describeDelegationToken().delegationTokens()));
        wait(admin.deleteConsumerGroups(Collections.singleton(GROUP)).all());
        wait(admin.deleteTopics(Collections.singleton(TOPIC)).all());
        tell("left", wait(admin.listTopics().names()));
    }

    static String refusal(KafkaFuture<?> future) throws Exception {
        try {
            return "granted " + wait(future);
        } catch (ExecutionException problem) {
            return problem.getCause().getClass().getSimpleName();
        }
    }

    static String transactions() {
        Properties settings = settings("transactional.id", "tx", "enable.idempotence", "true");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (boolean isCommit : new boolean[] {false, true}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("transactions", "key", "value"));
                if (isCommit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            return "committed";
        } catch (RuntimeException problem) {
            return problem.getMessage();
        }
    }
}
