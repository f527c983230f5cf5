from pymc_dirdp.counting.counts import SparseCounts as SparseCounts
from pymc_dirdp.counting.tables import count_sparse as count_sparse
from pymc_dirdp.inference.sparse_cells import SparsePrior as SparsePrior
from pymc_dirdp.mechanisms.sparse import least_threshold as least_threshold
from pymc_dirdp.releases.sparse import SparseEstimates as SparseEstimates
from pymc_dirdp.releases.sparse import release_sparse as release_sparse
