// Titles and meanings of the steps and blocks. Terms are those of textbooks: attention is
// "cơ chế chú ý", 어텐션 and 注意力; query, key and value keep their English names in Vietnamese
// and are 쿼리, 키, 값 and 查询, 键, 值.

#include "explain/catalogue.h"

namespace qkv {
namespace {

constexpr Message kMessages[] = {
    // --- blocks ---------------------------------------------------------------------------
    {"block.attention.title", "Scaled dot-product attention", "Chú ý tích vô hướng có chia tỉ lệ",
     "스케일드 닷 프로덕트 어텐션", "缩放点积注意力"},
    {"block.attention.intro",
     "Each query is compared with every key; the shares that come out mix the values.",
     "Mỗi query được so với mọi key; các tỉ trọng thu được dùng để trộn các value.",
     "각 쿼리를 모든 키와 비교하고, 거기서 나온 비율로 값을 섞는다.",
     "每个查询与所有键比较，得到的权重用来混合各个值。"},
    {"block.simple.title", "Self-attention without weights", "Tự chú ý không có trọng số học",
     "가중치 행렬이 없는 셀프 어텐션", "没有可学习权重的自注意力"},
    {"block.simple.intro",
     "The simplest self-attention: every token is compared with every token as it is, and replaced "
     "by a mixture of all of them.",
     "Dạng tự chú ý đơn giản nhất: mỗi token được so trực tiếp với mọi token, rồi được thay bằng "
     "một hỗn hợp của tất cả.",
     "가장 단순한 셀프 어텐션: 각 토큰을 있는 그대로 모든 토큰과 비교하고, 모든 토큰의 혼합으로 "
     "바꾼다.",
     "最简单的自注意力：每个词元原样与所有词元比较，再换成所有词元的混合。"},
    {"block.transformer.title", "Multi-head attention of the Transformer",
     "Chú ý đa đầu của Transformer", "트랜스포머의 멀티 헤드 어텐션", "Transformer 的多头注意力"},
    {"block.transformer.intro",
     "Three matrices make queries, keys and values; each head attends in a subspace of its own; "
     "one more matrix joins the heads.",
     "Ba ma trận tạo ra query, key và value; mỗi đầu chú ý trong một không gian con riêng; một ma "
     "trận nữa gộp các đầu lại.",
     "세 행렬이 쿼리, 키, 값을 만들고, 각 헤드는 자신만의 부분 공간에서 어텐션하며, 마지막 행렬이 "
     "헤드들을 합친다.",
     "三个矩阵产生查询、键和值；每个头在自己的子空间中计算注意力；最后一个矩阵把各头合在一起。"},
    {"block.vit.title", "Attention of a vision transformer", "Chú ý của Vision Transformer",
     "비전 트랜스포머의 어텐션", "视觉 Transformer 的注意力"},
    {"block.vit.intro",
     "One product makes queries, keys and values at once; reshaping sorts them into three drawers.",
     "Một phép nhân tạo query, key và value cùng lúc; phép đổi hình dạng xếp chúng vào ba ngăn.",
     "한 번의 곱으로 쿼리, 키, 값을 한꺼번에 만들고, 모양을 바꿔 세 서랍에 나눠 담는다.",
     "一次乘法同时产生查询、键和值；重排形状把它们分进三个抽屉。"},
    {"block.gpt.title", "Causal self-attention of GPT", "Tự chú ý nhân quả của GPT",
     "GPT의 인과적 셀프 어텐션", "GPT 的因果自注意力"},
    {"block.gpt.intro",
     "A token sees itself and the ones before it; those after it are hidden, as they are not yet "
     "there when text is generated.",
     "Một token chỉ thấy chính nó và các token đứng trước; các token phía sau bị che, vì khi sinh "
     "văn bản chúng chưa tồn tại.",
     "토큰은 자기 자신과 앞의 토큰만 본다. 뒤의 토큰은 글을 생성할 때 아직 없으므로 가린다.",
     "一个词元只能看到自己和前面的词元；后面的被遮住，因为生成文本时它们还不存在。"},
    {"block.decoder.title", "Attention of one layer of a GPT", "Chú ý của một lớp trong GPT",
     "GPT 한 층의 어텐션", "GPT 中一层的注意力"},
    {"block.decoder.intro",
     "A real model reads a real text. Rows are the tokens that ask, columns the tokens that they "
     "see: those whose keys wait in the cache, and the new ones.",
     "Một mô hình thật đọc một văn bản thật. Hàng là các token đặt câu hỏi, cột là các token mà "
     "chúng thấy: những token có key nằm sẵn trong bộ nhớ đệm và những token mới.",
     "실제 모델이 실제 글을 읽는다. 행은 묻는 토큰, 열은 그 토큰이 보는 토큰이다. 키가 캐시에 이미 "
     "있는 것과 새로 온 것이 있다.",
     "真实的模型读真实的文本。行是提问的词元，列是它们看到的词元：键已在缓存中的，以及新来的。"},
    {"decoder.cached",
     "{} keys came from the cache (positions 0 to {}, shown as ‹…›); {} are new and were appended "
     "to it.",
     "{} key lấy từ bộ nhớ đệm (vị trí 0 đến {}, ghi là ‹…›); {} key là mới và được thêm vào đó.",
     "키 {}개는 캐시에서 왔고(위치 0부터 {}까지, ‹…›로 표시), {}개는 새것으로 캐시에 추가되었다.",
     "{} 个键来自缓存（位置 0 到 {}，写作 ‹…›）；{} 个是新的，已追加到缓存。"},
    {"decoder.all_new",
     "No key came from the cache: all {} tokens are new. (--cached N lets the first N come from "
     "it, as when text is generated.)",
     "Không key nào lấy từ bộ nhớ đệm: cả {} token đều mới. (--cached N để N token đầu lấy từ đó, "
     "như khi sinh văn bản.)",
     "캐시에서 온 키는 없다. 토큰 {}개가 모두 새것이다. (--cached N이면 글을 생성할 때처럼 처음 "
     "N개가 "
     "캐시에서 온다.)",
     "没有键来自缓存：{} 个词元都是新的。（--cached N 让前 N 个来自缓存，如同生成文本时那样。）"},
    {"decoder.grouped", "{} query heads share {} heads of keys and values: {} ask the same keys.",
     "{} đầu query dùng chung {} đầu key và value: cứ {} đầu hỏi cùng một bộ key.",
     "쿼리 헤드 {}개가 키와 값 헤드 {}개를 나눠 쓴다. {}개씩 같은 키에 묻는다.",
     "{} 个查询头共用 {} 个键值头：每 {} 个头询问相同的键。"},
    {"block.detector.title", "Attention of a convolutional detector",
     "Chú ý của bộ phát hiện tích chập", "합성곱 검출기의 어텐션", "卷积检测器的注意力"},
    {"block.detector.intro",
     "The pixels are the tokens. A 1×1 convolution makes queries, keys and values; channels come "
     "first, pixels last.",
     "Các điểm ảnh chính là token. Một phép tích chập 1×1 tạo query, key và value; kênh đứng "
     "trước, điểm ảnh đứng sau.",
     "픽셀이 곧 토큰이다. 1×1 합성곱이 쿼리, 키, 값을 만들며, 채널이 앞, 픽셀이 뒤에 온다.",
     "像素就是词元。一个 1×1 卷积产生查询、键和值；通道在前，像素在后。"},
    {"block.psa.title", "PSA block: attention, then a feed-forward part",
     "Khối PSA: chú ý, rồi phần truyền thẳng", "PSA 블록: 어텐션 다음에 피드포워드",
     "PSA 块：先注意力，再前馈"},
    {"block.psa.intro",
     "What attention finds is added to the input; then two 1×1 convolutions with SiLU between them "
     "do the same once more.",
     "Kết quả chú ý được cộng vào đầu vào; sau đó hai phép tích chập 1×1 với SiLU ở giữa làm như "
     "vậy thêm một lần.",
     "어텐션의 결과를 입력에 더하고, 이어서 SiLU를 사이에 둔 두 1×1 합성곱이 같은 일을 한 번 더 "
     "한다.",
     "注意力的结果加到输入上；接着两个中间带 SiLU 的 1×1 卷积再做一次同样的事。"},
    {"block.c2psa.title", "C2PSA: half of the channels pass through PSA blocks",
     "C2PSA: một nửa số kênh đi qua các khối PSA", "C2PSA: 채널의 절반이 PSA 블록을 지난다",
     "C2PSA：一半通道经过 PSA 块"},
    {"block.c2psa.intro",
     "A 1×1 convolution gives two halves; one is kept, the other attends; a last convolution joins "
     "them.",
     "Một phép tích chập 1×1 cho hai nửa; một nửa giữ nguyên, nửa kia đi qua chú ý; phép tích chập "
     "cuối gộp chúng lại.",
     "1×1 합성곱이 두 절반을 만들고, 하나는 그대로 두고 다른 하나는 어텐션을 거친 뒤, 마지막 "
     "합성곱이 합친다.",
     "一个 1×1 卷积给出两半；一半保留，另一半经过注意力；最后的卷积把它们合并。"},

    // --- inputs and weights ---------------------------------------------------------------
    {"step.input.title", "Input", "Đầu vào", "입력", "输入"},
    {"step.input.meaning", "All that is known of each token, with no role yet.",
     "Tất cả những gì biết về mỗi token, chưa có vai trò nào.",
     "각 토큰에 대해 알려진 모든 것. 아직 역할은 없다.",
     "关于每个词元已知的全部信息，还没有角色。"},
    {"step.memory.title", "Memory", "Bộ nhớ", "메모리", "记忆序列"},
    {"step.memory.meaning", "The other sequence: the input asks, the memory answers.",
     "Dãy thứ hai: đầu vào hỏi, bộ nhớ trả lời.", "다른 시퀀스: 입력이 묻고 메모리가 답한다.",
     "另一个序列：输入提问，记忆序列回答。"},
    {"step.tokens.title", "Pixels as tokens", "Điểm ảnh thành token", "픽셀을 토큰으로",
     "把像素当作词元"},
    {"step.tokens.meaning",
     "The image is flattened row by row: N = H·W tokens, each with its C channels.",
     "Ảnh được trải phẳng theo từng hàng: N = H·W token, mỗi token có C kênh.",
     "이미지를 행 순서로 펼친다: N = H·W개의 토큰, 각각 C개의 채널.",
     "图像按行展平：N = H·W 个词元，每个有 C 个通道。"},
    {"step.w_query.title", "Query weights", "Trọng số query", "쿼리 가중치", "查询权重"},
    {"step.w_query.meaning", "A filter that rereads each token for one role: what it asks.",
     "Bộ lọc đọc lại mỗi token cho một vai trò: nó hỏi gì.",
     "각 토큰을 한 역할로 다시 읽는 필터: 무엇을 묻는가.",
     "为一个角色重新读取每个词元的滤波器：它要问什么。"},
    {"step.w_key.title", "Key weights", "Trọng số key", "키 가중치", "键权重"},
    {"step.w_key.meaning", "A filter for the second role: what the token is compared by.",
     "Bộ lọc cho vai trò thứ hai: token được so sánh bằng gì.",
     "두 번째 역할의 필터: 무엇으로 비교되는가.", "第二个角色的滤波器：用什么来与它比较。"},
    {"step.w_value.title", "Value weights", "Trọng số value", "값 가중치", "值权重"},
    {"step.w_value.meaning", "A filter for the third role: what the token passes on.",
     "Bộ lọc cho vai trò thứ ba: token truyền đi điều gì.",
     "세 번째 역할의 필터: 무엇을 전달하는가.", "第三个角色的滤波器：它要传递什么。"},
    {"step.w_output.title", "Output weights", "Trọng số đầu ra", "출력 가중치", "输出权重"},
    {"step.w_output.meaning", "The matrix that mixes what the heads found.",
     "Ma trận trộn những gì các đầu tìm được.", "헤드들이 찾은 것을 섞는 행렬.",
     "把各头所得混合起来的矩阵。"},
    {"step.dims.title", "Sizes", "Các kích thước", "크기", "各个尺寸"},
    {"step.dims.meaning",
     "How many channels the projection has to give: dim for the values, and nh_kd each for queries "
     "and keys.",
     "Phép chiếu phải cho bao nhiêu kênh: dim cho value, và nh_kd cho mỗi phần query và key.",
     "투영이 내야 할 채널 수: 값에 dim개, 쿼리와 키에 각각 nh_kd개.",
     "投影需要给出多少通道：值占 dim 个，查询和键各占 nh_kd 个。"},

    // --- projections ----------------------------------------------------------------------
    {"step.qkv.title", "Projection to Q, K and V at once", "Phép chiếu ra Q, K, V cùng lúc",
     "Q, K, V로 한 번에 투영", "一次投影得到 Q、K、V"},
    {"step.qkv.meaning",
     "Each token becomes [Q | K | V]: one product instead of three, better for memory and speed.",
     "Mỗi token trở thành [Q | K | V]: một phép nhân thay vì ba, tốt hơn cho bộ nhớ và tốc độ.",
     "각 토큰이 [Q | K | V]가 된다: 곱셈 세 번 대신 한 번이라 메모리와 속도에 유리하다.",
     "每个词元变成 [Q | K | V]：一次乘法代替三次，对内存和速度都更好。"},
    {"step.qkv_conv.title", "1×1 convolution to Q, K and V", "Tích chập 1×1 ra Q, K, V",
     "Q, K, V로 가는 1×1 합성곱", "用 1×1 卷积得到 Q、K、V"},
    {"step.qkv_conv.meaning",
     "The same linear map for every pixel, with Wq, Wk and Wv fused in one weight. Its channels "
     "are sorted per head: q of head 0, k of head 0, v of head 0, q of head 1, …",
     "Cùng một ánh xạ tuyến tính cho mọi điểm ảnh, với Wq, Wk, Wv gộp trong một trọng số. Các kênh "
     "xếp theo từng đầu: q của đầu 0, k của đầu 0, v của đầu 0, q của đầu 1, …",
     "모든 픽셀에 같은 선형 변환이며, Wq, Wk, Wv가 하나의 가중치로 합쳐져 있다. 채널은 헤드별로 "
     "정렬된다: 헤드 0의 q, k, v, 헤드 1의 q, …",
     "对每个像素做同一个线性映射，Wq、Wk、Wv 合在一个权重里。通道按头排列：头 0 的 q、k、v，头 1 "
     "的 q，……"},
    {"step.query.title", "Query", "Query", "쿼리", "查询"},
    {"step.query.meaning", "What each token asks.", "Mỗi token hỏi gì.", "각 토큰이 묻는 것.",
     "每个词元要问的内容。"},
    {"step.key.title", "Key", "Key", "키", "键"},
    {"step.key.meaning", "What each token is compared by.", "Mỗi token được so sánh bằng gì.",
     "각 토큰이 비교될 때 쓰이는 것.", "与每个词元比较时所用的内容。"},
    {"step.value.title", "Value", "Value", "값", "值"},
    {"step.value.meaning", "What each token passes on.", "Mỗi token truyền đi điều gì.",
     "각 토큰이 전달하는 것.", "每个词元要传递的内容。"},
    {"step.query_conv.title", "Query", "Query", "쿼리", "查询"},
    {"step.query_conv.meaning",
     "What each pixel asks. In memory channels come first and pixels last.",
     "Mỗi điểm ảnh hỏi gì. Trong bộ nhớ, kênh đứng trước và điểm ảnh đứng sau.",
     "각 픽셀이 묻는 것. 메모리에서는 채널이 앞, 픽셀이 뒤에 온다.",
     "每个像素要问的内容。在内存中通道在前，像素在后。"},
    {"step.key_conv.title", "Key", "Key", "키", "键"},
    {"step.key_conv.meaning", "What each pixel is compared by; as wide as the query.",
     "Mỗi điểm ảnh được so sánh bằng gì; rộng bằng query.",
     "각 픽셀이 비교될 때 쓰이는 것. 쿼리와 폭이 같다.",
     "与每个像素比较时所用的内容；与查询同宽。"},
    {"step.value_conv.title", "Value", "Value", "값", "值"},
    {"step.value_conv.meaning",
     "What each pixel passes on. Its width is free: it carries the content, while query and key "
     "only decide the shares.",
     "Mỗi điểm ảnh truyền đi điều gì. Độ rộng của nó tự do: nó mang nội dung, còn query và key chỉ "
     "quyết định tỉ trọng.",
     "각 픽셀이 전달하는 것. 폭은 자유롭다: 값은 내용을 나르고 쿼리와 키는 비율만 정한다.",
     "每个像素要传递的内容。它的宽度可以不同：值承载内容，查询和键只决定权重。"},
    {"step.query_norm.title", "Query, normalised", "Query đã chuẩn hoá", "정규화된 쿼리",
     "归一化后的查询"},
    {"step.query_norm.meaning", "Each query brought to a common size, so that scores stay tame.",
     "Mỗi query được đưa về cùng một cỡ để điểm số không quá lớn.",
     "각 쿼리의 크기를 맞춰 점수가 지나치게 커지지 않게 한다.",
     "把每个查询调到同样的大小，使分数不致过大。"},
    {"step.key_norm.title", "Key, normalised", "Key đã chuẩn hoá", "정규화된 키", "归一化后的键"},
    {"step.key_norm.meaning", "The same for the keys.", "Tương tự cho các key.",
     "키에도 같은 일을 한다.", "对键也同样处理。"},

    // --- attention ------------------------------------------------------------------------
    {"step.query_rope.title", "Query, turned by its position", "Query đã xoay theo vị trí",
     "위치에 따라 회전한 쿼리", "按位置旋转后的查询"},
    {"step.query_rope.meaning",
     "Pairs of channels are turned by an angle that grows with the position, so that scores depend "
     "on distances.",
     "Từng cặp kênh được xoay một góc tăng theo vị trí, nhờ đó điểm số phụ thuộc vào khoảng cách.",
     "채널 쌍을 위치에 따라 커지는 각도로 돌린다. 그래서 점수는 거리에 따라 정해진다.",
     "每对通道按随位置增大的角度旋转，于是分数取决于距离。"},
    {"step.key_rope.title", "Keys, turned by their positions", "Key đã xoay theo vị trí",
     "위치에 따라 회전한 키", "按位置旋转后的键"},
    {"step.key_rope.meaning", "The same for the keys, of which the cache keeps the turned ones.",
     "Tương tự cho các key; bộ nhớ đệm giữ các key đã xoay.",
     "키도 마찬가지이며, 캐시는 회전한 키를 보관한다.", "键也一样；缓存中保存的是旋转后的键。"},
    {"step.scores.title", "Scores", "Điểm số", "점수", "分数"},
    {"step.scores.meaning",
     "The dot product of each query with each key. Vectors that point the same way score high: "
     "they are relevant to each other.",
     "Tích vô hướng của mỗi query với mỗi key. Các vector cùng hướng cho điểm cao: chúng liên quan "
     "đến nhau.",
     "각 쿼리와 각 키의 내적. 같은 방향을 가리키는 벡터는 점수가 높다: 서로 관련이 있다는 뜻이다.",
     "每个查询与每个键的点积。方向相同的向量得分高：它们彼此相关。"},
    {"step.scaled.title", "Scaled scores", "Điểm số đã chia tỉ lệ", "스케일된 점수",
     "缩放后的分数"},
    {"step.scaled.meaning",
     "Divided by the square root of the key's width: products grow with the width, and large ones "
     "saturate the softmax, whose gradient then vanishes.",
     "Chia cho căn bậc hai độ rộng của key: tích vô hướng lớn dần theo độ rộng, và khi quá lớn sẽ "
     "làm softmax bão hoà, gradient triệt tiêu.",
     "키의 폭의 제곱근으로 나눈다: 내적은 폭이 클수록 커지고, 너무 크면 소프트맥스가 포화되어 "
     "기울기가 소실된다.",
     "除以键宽度的平方根：点积随宽度增大，过大时 softmax 会饱和，梯度随之消失。"},
    {"step.softcapped.title", "Capped scores", "Điểm số đã chặn", "상한을 둔 점수", "限幅后的分数"},
    {"step.softcapped.meaning", "Bent smoothly, so that no score passes the cap.",
     "Uốn trơn để không điểm nào vượt mức chặn.", "어떤 점수도 상한을 넘지 않도록 부드럽게 휜다.",
     "平滑地压弯，使任何分数都不超过上限。"},
    {"step.masked.title", "Masked scores", "Điểm số đã che", "마스크된 점수", "掩码后的分数"},
    {"step.masked.meaning",
     "What a query may not see becomes −inf, which softmax turns into a share of 0.",
     "Những gì query không được thấy trở thành −inf; softmax biến nó thành tỉ trọng 0.",
     "쿼리가 보아서는 안 되는 것은 −inf가 되고, 소프트맥스는 이를 비율 0으로 바꾼다.",
     "查询不能看到的位置变成 −inf，softmax 会把它变成权重 0。"},
    {"step.weights.title", "Attention weights", "Trọng số chú ý", "어텐션 가중치", "注意力权重"},
    {"step.weights.meaning",
     "Each row as shares of 1: how much a query listens to each key. A share is exp(score) over "
     "the sum of its row; the row's largest score is subtracted first, which changes no share but "
     "keeps exp small.",
     "Mỗi hàng là các tỉ trọng có tổng bằng 1: query lắng nghe mỗi key bao nhiêu. Mỗi tỉ trọng là "
     "exp(điểm số) chia cho tổng của cả hàng; trước đó trừ đi điểm lớn nhất của hàng, điều này "
     "không đổi tỉ trọng nào mà chỉ giữ exp nhỏ.",
     "각 행은 합이 1인 비율: 쿼리가 각 키에 얼마나 귀 기울이는가. 비율은 exp(점수)를 그 행의 "
     "합으로 나눈 것이다. 먼저 행의 가장 큰 점수를 빼는데, 비율은 그대로이고 exp만 작게 유지된다.",
     "每一行是和为 1 的比例：查询对每个键听取多少。比例等于 exp(分数) "
     "除以该行之和；先减去该行最大的分数，这不改变任何比例，只让 exp 保持较小。"},
    {"step.heads.title", "Head outputs", "Đầu ra của từng đầu", "헤드 출력", "各头的输出"},
    {"step.heads.meaning", "For each query the values, mixed by its weights.",
     "Với mỗi query, các value được trộn theo trọng số của nó.",
     "각 쿼리에 대해, 그 가중치로 섞은 값.", "对每个查询，按其权重混合的值。"},
    {"step.concat.title", "Concatenated heads", "Ghép các đầu", "헤드 이어 붙이기", "拼接各头"},
    {"step.concat.meaning", "The heads' outputs side by side, one row a token again.",
     "Đầu ra của các đầu đặt cạnh nhau, lại thành mỗi token một hàng.",
     "헤드들의 출력을 나란히 놓아 다시 토큰마다 한 행이 된다.",
     "把各头的输出并排放好，又回到每个词元一行。"},
    {"step.concat_conv.title", "Back to an image", "Trở lại thành ảnh", "다시 이미지로",
     "变回图像"},
    {"step.concat_conv.meaning",
     "The same numbers seen as channels of pixels again; nothing moves.",
     "Cùng những con số ấy, lại được xem là kênh của các điểm ảnh; không có gì di chuyển.",
     "같은 수를 다시 픽셀의 채널로 본다. 아무것도 움직이지 않는다.",
     "同样的数字重新看作像素的通道；没有任何数据移动。"},
    {"step.w_pe.title", "Weights of the positional encoding", "Trọng số của mã hoá vị trí",
     "위치 인코딩의 가중치", "位置编码的权重"},
    {"step.w_pe.meaning",
     "Nine weights a channel, one for each neighbour of a pixel: above left, above, above right, "
     "and so on. Neighbours outside of the image are left out.",
     "Mỗi kênh chín trọng số, mỗi điểm ảnh lân cận một trọng số: trên trái, trên, trên phải, v.v. "
     "Lân cận nằm ngoài ảnh thì bỏ qua.",
     "채널마다 가중치 아홉 개로, 픽셀의 이웃마다 하나씩이다: 왼쪽 위, 위, 오른쪽 위 등. 이미지 "
     "밖의 이웃은 뺀다.",
     "每个通道九个权重，像素的每个邻居一个：左上、上、右上，依此类推。图像之外的邻居不计。"},
    {"step.pe.title", "Positional encoding", "Mã hoá vị trí", "위치 인코딩", "位置编码"},
    {"step.pe.meaning",
     "A depthwise 3×3 convolution of the values: it tells neighbours from far pixels, which "
     "attention alone cannot.",
     "Tích chập 3×3 theo chiều sâu trên value: nó phân biệt điểm ảnh lân cận với điểm ở xa, điều "
     "mà riêng cơ chế chú ý không làm được.",
     "값에 대한 깊이별 3×3 합성곱: 어텐션만으로는 알 수 없는 이웃 픽셀과 먼 픽셀의 차이를 알려 "
     "준다.",
     "对值做逐通道 3×3 卷积：它区分邻近与远处的像素，这是注意力本身做不到的。"},
    {"step.sum.title", "Attention plus position", "Chú ý cộng vị trí", "어텐션과 위치의 합",
     "注意力加位置"},
    {"step.sum.meaning", "Both added, entry by entry.", "Cộng từng phần tử.",
     "둘을 원소별로 더한다.", "逐元素相加。"},
    {"step.output.title", "Output", "Đầu ra", "출력", "输出"},
    {"step.output.meaning", "What the heads found, mixed into one vector a token.",
     "Những gì các đầu tìm được, trộn thành một vector cho mỗi token.",
     "헤드들이 찾은 것을 토큰마다 하나의 벡터로 섞은 결과.", "各头所得混合成每个词元一个向量。"},
    {"step.attention_output.title", "Output", "Đầu ra", "출력", "输出"},
    {"step.attention_output.meaning", "For each query the values, mixed by its weights.",
     "Với mỗi query, các value được trộn theo trọng số của nó.",
     "각 쿼리에 대해, 그 가중치로 섞은 값.", "对每个查询，按其权重混合的值。"},
    {"step.simple_output.title", "Context vectors", "Vector ngữ cảnh", "문맥 벡터", "上下文向量"},
    {"step.simple_output.meaning", "Each token as a mixture of all that it sees.",
     "Mỗi token là hỗn hợp của tất cả những gì nó thấy.",
     "각 토큰은 자신이 보는 모든 토큰의 혼합이 된다.", "每个词元都是它所看到的全部词元的混合。"},

    // --- the detector's surroundings ------------------------------------------------------
    {"step.residual.title", "Residual", "Kết nối tắt", "잔차 연결", "残差"},
    {"step.residual.meaning", "The input plus what attention found.",
     "Đầu vào cộng với những gì chú ý tìm được.", "입력에 어텐션의 결과를 더한 것.",
     "输入加上注意力所得。"},
    {"step.expand.title", "Feed-forward, wider", "Truyền thẳng, mở rộng", "피드포워드, 넓히기",
     "前馈，加宽"},
    {"step.expand.meaning", "A 1×1 convolution to twice the channels.",
     "Tích chập 1×1 lên gấp đôi số kênh.", "채널을 두 배로 늘리는 1×1 합성곱.",
     "把通道数加倍的 1×1 卷积。"},
    {"step.silu.title", "SiLU", "SiLU", "SiLU", "SiLU"},
    {"step.silu.meaning", "Each number times its own sigmoid.",
     "Mỗi số nhân với sigmoid của chính nó.", "각 수에 자신의 시그모이드를 곱한다.",
     "每个数乘以它自己的 sigmoid。"},
    {"step.reduce.title", "Feed-forward, narrow again", "Truyền thẳng, thu hẹp lại",
     "피드포워드, 다시 좁히기", "前馈，收窄"},
    {"step.reduce.meaning", "A 1×1 convolution back to the channels of the input.",
     "Tích chập 1×1 trở về số kênh của đầu vào.", "입력의 채널 수로 되돌리는 1×1 합성곱.",
     "回到输入通道数的 1×1 卷积。"},
    {"step.psa_output.title", "Output", "Đầu ra", "출력", "输出"},
    {"step.psa_output.meaning", "The residual plus what the feed-forward part found.",
     "Kết nối tắt cộng với kết quả của phần truyền thẳng.", "잔차에 피드포워드의 결과를 더한 것.",
     "残差加上前馈部分所得。"},
    {"step.cv1.title", "Two halves", "Hai nửa", "두 절반", "两半"},
    {"step.cv1.meaning", "A 1×1 convolution with SiLU; its channels are halves a and b.",
     "Tích chập 1×1 với SiLU; các kênh của nó là hai nửa a và b.",
     "SiLU가 붙은 1×1 합성곱. 그 채널은 두 절반 a와 b이다.",
     "带 SiLU 的 1×1 卷积；其通道分为 a、b 两半。"},
    {"step.c2psa_concat.title", "Halves side by side", "Hai nửa đặt cạnh nhau",
     "나란히 놓은 두 절반", "两半并排"},
    {"step.c2psa_concat.meaning", "The half that was kept, and the half that attended.",
     "Nửa được giữ nguyên và nửa đã qua chú ý.", "그대로 둔 절반과 어텐션을 거친 절반.",
     "保留的一半和经过注意力的一半。"},
    {"step.c2psa_output.title", "Output", "Đầu ra", "출력", "输出"},
    {"step.c2psa_output.meaning", "A last 1×1 convolution with SiLU joins the halves.",
     "Phép tích chập 1×1 cuối cùng với SiLU gộp hai nửa.",
     "SiLU가 붙은 마지막 1×1 합성곱이 두 절반을 합친다.", "最后一个带 SiLU 的 1×1 卷积合并两半。"},
    {"step.sizes.title", "Sizes as the width grows", "Độ lớn khi độ rộng tăng",
     "폭이 커질 때의 크기", "宽度增大时的大小"},
    {"step.sizes.meaning",
     "For random queries and keys of width d: the size of the scores, the largest weight of a row "
     "(8 keys) and how much the weights still react to the scores; first as they are, then divided "
     "by √d.",
     "Với query và key ngẫu nhiên có độ rộng d: độ lớn của điểm số, trọng số lớn nhất của một hàng "
     "(8 key) và mức độ trọng số còn phản ứng với điểm số; trước là để nguyên, sau là chia cho √d.",
     "폭이 d인 무작위 쿼리와 키에 대해: 점수의 크기, 한 행(키 8개)의 가장 큰 가중치, 가중치가 "
     "점수에 아직 반응하는 정도. 먼저 그대로, 다음은 √d로 나눈 경우이다.",
     "对宽度为 d 的随机查询和键：分数的大小、一行（8 "
     "个键）中最大的权重，以及权重对分数还有多少反应；先是原样，再是除以 √d。"},
};

}  // namespace

std::span<const Message> step_messages() noexcept { return kMessages; }

}  // namespace qkv
