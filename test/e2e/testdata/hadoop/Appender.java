import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Appender URI PATH: creates the file and appends each line of its input, with an hflush or hsync
 * each, after which it prints the line. At the end of the input it closes the file. An error is
 * printed as "error CLASS", with exit code 1.
 * Appender URI PATH append: the same, but it appends to the file.
 * Appender URI PATH take: has the file recovered from whoever writes it, and appends "taken".
 */
public final class Appender {
  public static void main(String[] args) throws Exception {
    Path path = new Path(args[1]);
    try {
      FileSystem fs = new Path(args[0]).getFileSystem(new Configuration());
      String how = args.length > 2 ? args[2] : "create";
      if (how.equals("take")) {
        DistributedFileSystem hdfs = (DistributedFileSystem) fs;
        while (!hdfs.recoverLease(path)) {
          Thread.sleep(100);
        }
        try (FSDataOutputStream out = fs.append(path)) {
          out.write("taken\n".getBytes());
        }
        return;
      }
      FSDataOutputStream out = how.equals("append") ? fs.append(path) : fs.create(path, false);
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
      int n = 0;
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        out.write((line + "\n").getBytes());
        if (n++ % 2 == 0) {
          out.hflush();
        } else {
          out.hsync();
        }
        System.out.println(line);
      }
      out.close();
    } catch (Exception e) {
      String name = e instanceof org.apache.hadoop.ipc.RemoteException ? ((org.apache.hadoop.ipc.RemoteException) e).getClassName() : e.getClass().getName();
      System.out.println("error " + name);
      e.printStackTrace();
      System.out.flush();
      Runtime.getRuntime().halt(1); // nothing is closed
    }
  }
}
