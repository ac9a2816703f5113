import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

/** How long Apache Kafka's own classes have a client wait: a line of numbers for each thing that happens, a wait for each.
 *
 * <p>rate|bucket COUNT WINDOW_SECONDS begins anew; LIMIT AMOUNT NOW_MS is something that is counted then.
 */
public class Waits {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        Rate rate = null;
        TokenBucket bucket = null;
        MetricConfig windows = null;
        MetricName name = new MetricName("n", "g", "", Map.of());
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            if (words[0].equals("rate") || words[0].equals("bucket")) {
                rate = words[0].equals("rate") ? new Rate() : null;
                bucket = new TokenBucket();
                windows = new MetricConfig()
                    .samples(Integer.parseInt(words[1]))
                    .timeWindow(Integer.parseInt(words[2]), TimeUnit.SECONDS);
                continue;
            }
            double limit = Double.parseDouble(words[0]);
            long nowMs = Long.parseLong(words[2]);
            windows.quota(Quota.upperBound(limit));
            var stat = rate != null ? rate : bucket;
            stat.record(windows, Double.parseDouble(words[1]), nowMs);
            double value = stat.measure(windows, nowMs);
            long waitMs = 0;
            KafkaMetric metric = new KafkaMetric(new Object(), name, stat, windows, Time.SYSTEM);
            var beyond = new QuotaViolationException(metric, value, limit);
            if (rate != null && value > limit) {
                waitMs = QuotaUtils.throttleTime(beyond, nowMs);
            } else if (rate == null && value < 0) {
                waitMs = ControllerMutationQuotaManager.throttleTimeMs(beyond);
            }
            System.out.println(waitMs);
        }
    }
}
