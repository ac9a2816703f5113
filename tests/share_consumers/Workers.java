// What a user of share groups does: workers take jobs from a queue, say how each went, and an admin looks at it.
// Each line that it prints is one answer: a name, and what came of it. "half" asks for the kill of the broker.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Workers {
    static final String TOPIC = "jobs";
    static final String GROUP = "workers";
    static final int JOBS = 2000;
    static final int WORKERS = 3;
    static final long LIMIT_SECONDS = 120;

    static String bootstrap;
    static final Set<Integer> done = ConcurrentHashMap.newKeySet();
    static final Set<Integer> refused = ConcurrentHashMap.newKeySet();
    // What the killed broker may have written down, though its answer was lost: in neither of the two above.
    static final Set<Integer> unsure = ConcurrentHashMap.newKeySet();
    static final Set<Integer> again = ConcurrentHashMap.newKeySet();
    static final Set<Integer> triedAgain = ConcurrentHashMap.newKeySet();
    static volatile boolean isOver;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
            admin.incrementalAlterConfigs(Map.of(group, List.of(
                    new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("share.delivery.count.limit", "10"), AlterConfigOp.OpType.SET))))
                .all().get();
            List<Thread> workers = new ArrayList<>();
            for (int index = 0; index < WORKERS; index++) {
                workers.add(new Thread(Workers::work));
                workers.get(index).start();
            }
            write();
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
            while ((count(done, refused, unsure) < JOBS || lag(admin) > 0) && System.nanoTime() < end) {
                Thread.sleep(50);
            }
            tell("members", admin.describeShareGroups(List.of(GROUP)).describedGroups().get(GROUP).get().members().size());
            isOver = true;
            for (Thread worker : workers) {
                worker.join();
            }
            tell("jobs", count(done, refused, unsure));
            tell("known to be done", done.size() > JOBS / 2);
            tell("refused and done", done.stream().filter(refused::contains).count());
            tell("delivered again", again.size());
            tell("tried again", triedAgain.size() >= JOBS / 10);
            tell("lag", lag(admin));
            tell("state", admin.describeShareGroups(List.of(GROUP)).describedGroups().get(GROUP).get().groupState());
            admin.deleteShareGroups(List.of(GROUP)).all().get();
            tell("left", admin.listGroups().all().get().size());
        }
    }

    static void work() {
        Properties settings = settings();
        settings.put("group.id", GROUP);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("max.poll.records", "50");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(TOPIC));
            List<Integer> accepted = new ArrayList<>();
            List<Integer> rejected = new ArrayList<>();
            while (!isOver) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int job = Integer.parseInt(record.value());
                    if (done.contains(job) || refused.contains(job)) {
                        again.add(job);
                    }
                    boolean isFirst = record.deliveryCount().orElse((short) 0) == 1;
                    if (job % 11 == 5) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        rejected.add(job);
                    } else if (job % 7 == 3 && isFirst) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        triedAgain.add(job);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.add(job);
                    }
                }
                boolean isKnown = consumer.commitSync().values().stream().allMatch(error -> error.isEmpty());
                if (isKnown) {
                    done.addAll(accepted);
                    refused.addAll(rejected);
                } else {
                    unsure.addAll(accepted);
                    unsure.addAll(rejected);
                }
                accepted.clear();
                rejected.clear();
                if (done.size() >= JOBS / 3) {
                    half();
                }
            }
        } catch (Exception error) {
            tell("failed", error);
        }
    }

    static int count(Set<Integer> first, Set<Integer> second, Set<Integer> third) {
        Set<Integer> all = new HashSet<>(first);
        all.addAll(second);
        all.addAll(third);
        return all.size();
    }

    static boolean isHalfTold;

    static synchronized void half() {
        if (!isHalfTold) {
            isHalfTold = true;
            tell("half", done.size());
        }
    }

    static void write() {
        Properties settings = settings();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("delivery.timeout.ms", "120000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int job = 0; job < JOBS; job++) {
                producer.send(new ProducerRecord<>(TOPIC, Integer.toString(job % 100), Integer.toString(job)));
            }
        }
    }

    static long lag(Admin admin) throws Exception {
        Map<TopicPartition, SharePartitionOffsetInfo> offsets = admin
            .listShareGroupOffsets(Map.of(GROUP, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(GROUP)
            .get();
        return offsets.values().stream().mapToLong(one -> one.lag().orElse(-1L)).sum();
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    static synchronized void tell(String name, Object value) {
        System.out.println(name + ": " + value);
        System.out.flush();
    }
}
