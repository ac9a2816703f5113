/*
 * Kafka's StickyTaskAssignor, asked from outside: `java` compiles this file as it starts it. Each line of standard
 * input is a group, its parts between semicolons: the number of standby replicas; subtopologies, `name:tasks:stateful`
 * (1 or 0) between bars; members, `member:process:active:standby` between bars, tasks `subtopology_partition`
 * between commas. Each line of standard output is `member:active:standby` of the members, in order.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

public class StickyTasks {
    static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        if (text.isEmpty()) return found;
        for (String one : text.split(",")) {
            String[] parts = one.split("_");
            found.computeIfAbsent(parts[0], name -> new HashSet<>()).add(Integer.valueOf(parts[1]));
        }
        return found;
    }

    static String text(Map<String, Set<Integer>> tasks) {
        return tasks.entrySet().stream()
            .flatMap(of -> of.getValue().stream().map(partition -> of.getKey() + "_" + partition))
            .sorted().collect(Collectors.joining(","));
    }

    static class Work implements TopologyDescriber {
        final Map<String, String[]> parts = new TreeMap<>();

        Work(String text) {
            for (String one : text.split("\\|")) parts.put(one.split(":")[0], one.split(":"));
        }

        @Override
        public List<String> subtopologies() {
            return new ArrayList<>(parts.keySet());
        }

        @Override
        public int maxNumInputPartitions(String subtopology) {
            return Integer.parseInt(parts.get(subtopology)[1]);
        }

        @Override
        public boolean isStateful(String subtopology) {
            return parts.get(subtopology)[2].equals("1");
        }
    }

    static String answer(String line) {
        String[] parts = line.split(";");
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (String one : parts[2].split("\\|")) {
            String[] of = one.split(":", -1);
            members.put(of[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(of[2]), tasks(of[3]),
                Map.of(), of[1], Map.of(), Map.of(), Map.of()));
        }
        GroupSpecImpl group = new GroupSpecImpl(members, Map.of("num.standby.replicas", parts[0]));
        GroupAssignment found = new StickyTaskAssignor().assign(group, new Work(parts[1]));
        return found.members().entrySet().stream().sorted(Map.Entry.comparingByKey())
            .map(of -> of.getKey() + ":" + text(of.getValue().activeTasks()) + ":" + text(of.getValue().standbyTasks()))
            .collect(Collectors.joining("|"));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine())
            System.out.println(answer(line));
    }
}
