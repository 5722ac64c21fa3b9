import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Hdfs DIR: serves an HDFS of one DataNode, with its files in DIR, prints its URI and ends with its input. */
public final class Hdfs {
  public static void main(String[] args) throws Exception {
    Configuration c = new HdfsConfiguration();
    c.setInt("dfs.replication", 1);
    c.setInt("dfs.namenode.fs-limits.min-block-size", 0);
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(c, new File(args[0])).numDataNodes(1).build();
    System.out.println(hdfs.getURI());
    while (System.in.read() >= 0) {
    }
    Runtime.getRuntime().halt(0);
  }
}
