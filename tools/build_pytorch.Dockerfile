# A patched PyTorch for the CPU, from a checkout on the host:
#     docker build -t build-pytorch -f tools/build_pytorch.Dockerfile .
#     docker run --rm -it -v $PWD/../pytorch:/pytorch build-pytorch /pytorch v2.13.0/strict
# What is built stays in the checkout, so an interrupted run goes on.
FROM python:3.11-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential ccache cmake git ninja-build \
 && rm -rf /var/lib/apt/lists/*
# clampgrad with a stock wheel, apart from the environment that is built.
RUN python -m venv /clampgrad \
 && /clampgrad/bin/pip install torch==2.13.0 numpy
COPY . /source
RUN cd /source && CLAMPGRAD_PORTABLE=1 /clampgrad/bin/pip install --no-deps .
ENV CLAMPGRAD_PYTHON=/clampgrad/bin/python CLAMPGRAD_PORTABLE=1
RUN git config --global --add safe.directory '*'
ENTRYPOINT ["bash", "-c", "pip install -q -r \"$1/requirements.txt\" expecttest && exec /source/tools/build_pytorch.sh \"$@\"", "--"]
