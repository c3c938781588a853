import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors, asked by lines on standard input and answered by lines on standard output.
 *
 * assign|ASSIGNOR|TOPIC=RACK,RACK/RACK,RACK/... ...|MEMBER;INSTANCE;TOPIC ...;USER DATA;TOPIC:PARTITION ...;GENERATION;RACK|...
 *     MEMBER=TOPIC:PARTITION ...|...
 * remember|ASSIGNOR|TOPIC:PARTITION ...|GENERATION
 *     the user data that a member with this assignment sends
 *
 * A topic is told by the racks of the replicas of each of its partitions. User data is in Base64, empty for none.
 */
public class Assign {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\\|", -1);
            System.out.println(parts[0].equals("assign") ? assign(parts) : remember(parts));
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static String assign(String[] parts) {
        List<Node> nodes = new ArrayList<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : words(parts[2])) {
            String[] nameAndRacks = topic.split("=", -1);
            String[] perPartition = nameAndRacks[1].split("/", -1);
            for (int partition = 0; partition < perPartition.length; partition++) {
                Node[] replicas = Arrays.stream(perPartition[partition].split(","))
                    .map(rack -> new Node(nodes.size(), "host", 9092, rack.isEmpty() ? null : rack)).toArray(Node[]::new);
                nodes.addAll(List.of(replicas));
                partitions.add(new PartitionInfo(nameAndRacks[0], partition, replicas[0], replicas, replicas));
            }
        }
        Cluster cluster = new Cluster("cluster", nodes, partitions, Set.of(), Set.of());
        Map<String, Subscription> members = new HashMap<>();
        for (String member : Arrays.copyOfRange(parts, 3, parts.length)) {
            String[] told = member.split(";", -1);
            ByteBuffer data = told[3].isEmpty() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(told[3]));
            Subscription subscription = new Subscription(
                words(told[2]), data, partitions(told[4]), Integer.parseInt(told[5]),
                told[6].isEmpty() ? Optional.empty() : Optional.of(told[6]));
            subscription.setGroupInstanceId(told[1].isEmpty() ? Optional.empty() : Optional.of(told[1]));
            members.put(told[0], subscription);
        }
        Map<String, Assignment> shares = assignor(parts[1]).assign(cluster, new GroupSubscription(members)).groupAssignment();
        return new TreeMap<>(shares).entrySet().stream()
            .map(share -> share.getKey() + "=" + share.getValue().partitions().stream()
                .map(each -> each.topic() + ":" + each.partition()).sorted().collect(Collectors.joining(" ")))
            .collect(Collectors.joining("|"));
    }

    private static String remember(String[] parts) {
        ConsumerPartitionAssignor assignor = assignor(parts[1]);
        int generation = Integer.parseInt(parts[3]);
        assignor.onAssignment(
            new Assignment(partitions(parts[2])), new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(Set.of());
        byte[] bytes = new byte[data == null ? 0 : data.remaining()];
        if (data != null) {
            data.get(bytes);
        }
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static List<String> words(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(" "));
    }

    private static List<TopicPartition> partitions(String text) {
        return words(text).stream().map(each -> each.split(":"))
            .map(each -> new TopicPartition(each[0], Integer.parseInt(each[1]))).collect(Collectors.toList());
    }
}
