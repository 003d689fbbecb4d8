"""Results of a profile as Parquet files for git, from which its report is rendered without computing."""
