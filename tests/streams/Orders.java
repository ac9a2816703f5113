/*
 * The application that tests/streams runs: what users build of Kafka Streams, in one topology. `java`
 * compiles it as it starts it. Its settings are the lines `key=value` of the file that is its argument. On
 * standard input it takes commands, one a line, and answers on standard output:
 *
 *   table STORE    one line `row STORE key value` per key that this instance serves, then `end STORE`
 *   host STORE KEY the line `row STORE KEY PORT`, of the instance that has the key, then `end STORE`
 *   close          ends it cleanly; so does the end of the input
 *
 * It also tells `state NEW` at each change, `restored STORE COUNT` when a store has been read back from its
 * changelog (COUNT: records read), and `failed CLASS: message` for each exception that ended a thread, its
 * causes behind it.
 */
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

public class Orders {
    static final Serde<String> TEXT = Serdes.String();

    /** An order is a record of `orders`: no key, the value `user number`. */
    static String user(String order) {
        return order.split(" ")[0];
    }

    /** The numbers of `all` and that of `order`, each once: what was handled twice changes nothing. */
    static String with(String order, String all) {
        TreeSet<Integer> numbers = new TreeSet<>();
        String text = all + " " + order.split(" ")[1];
        for (String one : text.trim().split(" ")) numbers.add(Integer.valueOf(one));
        return numbers.stream().map(String::valueOf).collect(Collectors.joining(" "));
    }

    static Topology topology(Properties settings) {
        StreamsBuilder builder = new StreamsBuilder();
        GlobalKTable<String, String> names = builder.globalTable("names", Materialized.as("names-of-all"));
        KStream<String, String> orders = builder.stream("orders");
        orders.join(names, (key, order) -> user(order), (order, name) -> order + " " + name).to("named");
        KGroupedStream<String, String> byUser =
            orders.selectKey((key, order) -> user(order)).groupByKey(Grouped.as("by-user"));
        KTable<String, Long> counts = byUser.count(Materialized.as("counts"));
        KStream<String, String> changes = counts.toStream().mapValues(String::valueOf);
        changes.to("counts");
        changes.toTable(Materialized.as(
            Stores.persistentVersionedKeyValueStore("counts-then", Duration.ofHours(1))));
        byUser.aggregate(() -> "", (user, order, all) -> with(order, all), Materialized.as("numbers"));
        byUser.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count(Materialized.as("per-minute"));
        KTable<String, String> cities = builder.table("cities", Materialized.as("cities"));
        KTable<String, String> countries = builder.table("countries", Materialized.as("countries"));
        cities.leftJoin(countries, city -> city, (city, country) -> city + " in " + country,
            Materialized.as("places"));
        return builder.build(settings);
    }

    static void table(KafkaStreams streams, String store) {
        var parameters = StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.keyValueStore());
        try (KeyValueIterator<Object, Object> rows = streams.store(parameters).all()) {
            while (rows.hasNext()) {
                KeyValue<Object, Object> row = rows.next();
                System.out.println("row " + store + " " + row.key + " " + row.value);
            }
        } catch (RuntimeException problem) {
            System.out.println("row " + store + " is not readable: " + problem.getMessage());
        }
        System.out.println("end " + store);
    }

    static void host(KafkaStreams streams, String store, String key) {
        int port = -1;
        try {
            port = streams.queryMetadataForKey(store, key, TEXT.serializer()).activeHost().port();
        } catch (RuntimeException problem) {
            // Not yet.
        }
        System.out.println("row " + store + " " + key + " " + port);
        System.out.println("end " + store);
    }

    static StreamThreadExceptionResponse failed(Throwable problem) {
        StringBuilder line = new StringBuilder("failed");
        for (Throwable one = problem; one != null; one = one.getCause())
            line.append(" ").append(one).append(";");
        System.out.println(line.toString().replace('\n', ' '));
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    }

    static class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long first, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("restored " + store + " " + total);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, TEXT.getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, TEXT.getClass());
        KafkaStreams streams = new KafkaStreams(topology(settings), settings);
        streams.setUncaughtExceptionHandler(Orders::failed);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null && !line.equals("close"); line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("host")) host(streams, words[1], words[2]);
            else table(streams, words[1]);
        }
        streams.close(Duration.ofSeconds(30));
    }
}
