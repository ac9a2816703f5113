import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LastRecord;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's own Cleaner, asked from outside: `java` compiles this file as it starts it.
 *
 * <p>Each line of standard input is a pass over a log: DIRECTORY NOW_MS FIRST_DIRTY_OFFSET FIRST_UNCLEANABLE_OFFSET
 * MAP_BYTES LOAD_FACTOR and the topic's settings, NAME=VALUE each. The answer is how far the map reached, and of each
 * active producer `id:last data offset or -1:epoch`; or ERR and why there is none.
 */
public class CleanedLogs {
    /** It stands still during a pass: delete horizons are told to the millisecond. */
    static class Still implements Time {
        volatile long nowMs;

        @Override public long milliseconds() { return nowMs; }
        @Override public long hiResClockMs() { return nowMs; }
        @Override public long nanoseconds() { return nowMs * 1_000_000L; }
        @Override public void sleep(long ms) { }
        @Override public void waitObject(Object on, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
        @Override public Timer timer(long ms) { return Time.SYSTEM.timer(ms); }
        @Override public Timer timer(Duration duration) { return Time.SYSTEM.timer(duration); }
    }

    static final Still TIME = new Still();
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static String clean(String[] words) throws Exception {
        TIME.nowMs = Long.parseLong(words[1]);
        Properties settings = new Properties();
        for (String one : Arrays.copyOfRange(words, 6, words.length)) {
            String[] parts = one.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        UnifiedLog log = UnifiedLog.create(
            new File(words[0]), new LogConfig(settings), 0L, 0L, SCHEDULER, new BrokerTopicStats(), TIME, 3_600_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(5), true,
            Optional.empty());
        try {
            log.updateHighWatermark(log.logEndOffset());
            StringBuilder answer = new StringBuilder();
            for (Map.Entry<Long, LastRecord> one : new TreeMap<>(log.lastRecordsOfActiveProducers()).entrySet()) {
                answer.append(" ").append(one.getKey()).append(":").append(one.getValue().lastDataOffset().orElse(-1))
                    .append(":").append(one.getValue().producerEpoch());
            }
            Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(Integer.parseInt(words[4])), 65_536, 65_536, Double.parseDouble(words[5]),
                new Throttler(1e18, 300, "x", "y", TIME), TIME, partition -> { });
            LogToClean pass = new LogToClean(log, Long.parseLong(words[2]), Long.parseLong(words[3]), true);
            Map.Entry<Long, CleanerStats> done = cleaner.doClean(pass, TIME.nowMs);
            return done.getKey() + answer.toString();
        } finally {
            log.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        SCHEDULER.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = clean(line.split(" "));
            } catch (Throwable problem) {
                problem.printStackTrace();
                answer = "ERR " + problem;
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }
}
