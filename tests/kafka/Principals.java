// What Java and Kafka call the owners of certificates. A line in, a line out, values as hex of UTF-8: "S name",
// a subject's DER, is answered with its text; "R rules subject" with the name that Kafka's rules give, or "-".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

import static java.nio.charset.StandardCharsets.UTF_8;

public class Principals {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0].equals("S") ? subject(words[1]) : named(words[1], words[2]));
        }
    }

    private static String subject(String name) {
        return hex(new X500Principal(HexFormat.of().parseHex(name)).getName());
    }

    private static String named(String rules, String subject) {
        try {
            return hex(SslPrincipalMapper.fromRules(text(rules)).getName(text(subject)));
        } catch (Exception refused) {
            return "-";
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), UTF_8);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(UTF_8));
    }
}
