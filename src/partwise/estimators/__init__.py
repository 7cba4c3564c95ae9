"""One file per paper: a docstring with the objective, and the model it builds."""

#: Every estimator and the module that has it; also what a model file may name.
ESTIMATORS = {
    "NMF": "partwise.estimators.nmf",
    "GNMF": "partwise.estimators.gnmf",
    "SemiGNMF": "partwise.estimators.gnmf",
    "CNMF": "partwise.estimators.cnmf",
    "LpCNMF": "partwise.estimators.lpcnmf",
    "CDNMF": "partwise.estimators.cdnmf",
    "NMFDC": "partwise.estimators.nmfdc",
    "NSNMF": "partwise.estimators.nmfdc",
    "ConstrainedNMF": "partwise.estimators.constrained",
    "SemiNMF": "partwise.estimators.semi_nmf",
    "SymNMF": "partwise.estimators.sym_nmf",
    "CF": "partwise.estimators.cf",
    "LCF": "partwise.estimators.cf",
    "SparseNMF": "partwise.estimators.sparse_nmf",
    "MiniBatchNMF": "partwise.estimators.minibatch",
    "NTF": "partwise.estimators.ntf",
    "PartsClassifier": "partwise.classify.parts_classifier",
}
