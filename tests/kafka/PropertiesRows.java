/*
 * java.util.Properties, asked from outside: `java` compiles this file as it starts it. Each line of standard input is
 * a text in hexadecimal digits of its UTF-8; each line of standard output has its names and values in turn, written in
 * the same way between commas, or `refused`.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;
import java.util.StringJoiner;

public class PropertiesRows {
    static String row(String text) throws IOException {
        Properties read = new Properties();
        try {
            read.load(new StringReader(text));
        } catch (IllegalArgumentException malformed) {
            return "refused";
        }
        StringJoiner row = new StringJoiner(",");
        for (String name : read.stringPropertyNames()) {
            row.add(hex(name));
            row.add(hex(read.getProperty(name)));
        }
        return row.toString();
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(row(new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8)));
        }
    }
}
